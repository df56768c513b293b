import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.ResolvedRegularExpression;

/** Answers questions, one JSON object a line, with what the classes of Kafka's group coordinator say (KIP-848). */
public class ServerOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            if (question.get("kind").asText().equals("targets"))
                answerTargets(question, answer);
            else
                answerRecords(question, answer.putArray("records"));
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void answerTargets(JsonNode question, ObjectNode answer) {
        for (ConsumerGroupPartitionAssignor assignor : List.of(new UniformAssignor(), new RangeAssignor())) {
            ArrayNode rounds = answer.putArray(assignor.name());
            Map<String, Map<Uuid, Set<Integer>>> targets = new HashMap<>();
            for (JsonNode group : question.get("rounds")) {
                targets = assign(assignor, group, targets);
                rounds.add(owners(group, targets));
            }
        }
    }

    private static Map<String, Map<Uuid, Set<Integer>>> assign(
        ConsumerGroupPartitionAssignor assignor, JsonNode group, Map<String, Map<Uuid, Set<Integer>>> before
    ) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (JsonNode member : group.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(uuid(topic.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> target = before.getOrDefault(id, Map.of());
            target.forEach((topic, partitions) -> partitions.forEach(partition ->
                inverted.computeIfAbsent(topic, key -> new HashMap<>()).put(partition, id)));
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.get("instance").textValue()), topics, new Assignment(target)));
        }
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment assigned = assignor.assign(new GroupSpecImpl(members, type, inverted), describer(group));
        Map<String, Map<Uuid, Set<Integer>>> targets = new HashMap<>();
        assigned.members().forEach((id, share) -> targets.put(id, share.partitions()));
        return targets;
    }

    private static SubscribedTopicDescriber describer(JsonNode group) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                JsonNode count = group.get("counts").get(hex(topicId));
                return count == null ? -1 : count.asInt();
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
    }

    /** The position of each partition's owner among the members, -1 for none. */
    private static ObjectNode owners(JsonNode group, Map<String, Map<Uuid, Set<Integer>>> targets) {
        ObjectNode owners = JSON.createObjectNode();
        group.get("counts").fields().forEachRemaining(topic -> {
            ArrayNode positions = owners.putArray(topic.getKey());
            for (int partition = 0; partition < topic.getValue().asInt(); partition++) {
                int owner = -1;
                for (int at = 0; at < group.get("members").size(); at++) {
                    String id = group.get("members").get(at).get("id").asText();
                    if (targets.getOrDefault(id, Map.of()).getOrDefault(uuid(topic.getKey()), Set.of()).contains(partition))
                        owner = at;
                }
                positions.add(owner);
            }
        });
        return owners;
    }

    /** Every kind of record of one member's group, in order of the keys' versions: bytes of key and value, and both as JSON. */
    private static void answerRecords(JsonNode question, ArrayNode records) {
        String group = question.get("group").asText();
        List<String> names = new ArrayList<>();
        question.get("topics").forEach(topic -> names.add(topic.asText()));
        ConsumerGroupMember member = new ConsumerGroupMember.Builder(question.get("member").asText())
            .setInstanceId(question.get("instance").textValue())
            .setRackId(question.get("rack").textValue())
            .setClientId(question.get("client_id").asText())
            .setClientHost(question.get("client_host").asText())
            .setSubscribedTopicNames(names)
            .setSubscribedTopicRegex(question.get("regex").asText())
            .setServerAssignorName(question.get("assignor").textValue())
            .setRebalanceTimeoutMs(question.get("timeout").asInt())
            .setMemberEpoch(question.get("epoch").asInt())
            .setPreviousMemberEpoch(question.get("previous").asInt())
            .setState(MemberState.fromValue((byte) question.get("state").asInt()))
            .setAssignedPartitions(epochs(question.get("assigned")))
            .setPartitionsPendingRevocation(epochs(question.get("pending")))
            .build();
        long number = question.get("number").asLong();
        Map<Uuid, Set<Integer>> target = new LinkedHashMap<>();
        epochs(question.get("assigned")).forEach((topic, partitions) -> target.put(topic, new TreeSet<>(partitions.keySet())));
        add(records, GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord(group, 7, number));
        add(records, GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord(group, member));
        add(records, GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataRecord(group, 8, Math.abs(number)));
        add(records, GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord(group, member.memberId(), target));
        add(records, GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentRecord(group, member));
        add(records, GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionRecord(
            group, "t.*", new ResolvedRegularExpression(new TreeSet<>(names), 0, Math.abs(number))));
    }

    private static void add(ArrayNode records, CoordinatorRecord record) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        records.add(HexFormat.of().formatHex(serde.serializeKey(record)));
        records.add(HexFormat.of().formatHex(serde.serializeValue(record)));
        records.add(CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()));
        records.add(CoordinatorRecordJsonConverters.writeRecordValueAsJson(record.value().message(), record.value().version()));
    }

    private static Map<Uuid, Map<Integer, Integer>> epochs(JsonNode partitions) {
        Map<Uuid, Map<Integer, Integer>> epochs = new LinkedHashMap<>();
        for (JsonNode entry : partitions)
            epochs.computeIfAbsent(uuid(entry.get(0).asText()), topic -> new LinkedHashMap<>())
                .put(entry.get(1).asInt(), entry.get(2).asInt());
        return epochs;
    }

    private static Uuid uuid(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    private static String hex(Uuid uuid) {
        return String.format("%016x%016x", uuid.getMostSignificantBits(), uuid.getLeastSignificantBits());
    }
}
