import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;

/** Answers questions, one JSON object a line, with what Kafka's own client classes say. */
public class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            switch (question.get("kind").asText()) {
                case "groups" -> answerGroups(question, answer);
                case "murmur2" -> answer.put("hash", Utils.murmur2(HexFormat.of().parseHex(question.get("key").asText())));
                case "group" -> answer.put("partition", Utils.abs(question.get("id").asText().hashCode()) % 50);
                case "protocol" -> answerProtocol(question, answer);
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void answerGroups(JsonNode question, ObjectNode answer) {
        for (String name : List.of("range", "roundrobin", "sticky", "cooperative-sticky")) {
            ArrayNode rounds = answer.putArray(name);
            Map<String, Assignment> before = Map.of();
            for (JsonNode group : question.get("rounds")) {
                try {
                    before = assign(name, group, before);
                    rounds.add(owners(group, before));
                } catch (RuntimeException error) {
                    rounds.add(error.getClass().getSimpleName());
                    break;
                }
            }
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static Map<String, Assignment> assign(String name, JsonNode group, Map<String, Assignment> before) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : group.get("members")) {
            Subscription subscription = subscription(name, member, before.get(member.get("id").asText()));
            subscription.setGroupInstanceId(text(member, "instance"));
            subscriptions.put(member.get("id").asText(), subscription);
        }
        return assignor(name).assign(cluster(group), new GroupSubscription(subscriptions)).groupAssignment();
    }

    /** As the member's own client makes it: sticky tells what it had in its user data, cooperative in its fields. */
    private static Subscription subscription(String name, JsonNode member, Assignment before) {
        List<TopicPartition> owned = new ArrayList<>(before == null ? List.of() : before.partitions());
        for (JsonNode claim : member.get("claims"))
            owned.add(new TopicPartition(claim.get(0).asText(), claim.get(1).asInt()));
        int generation = member.get("generation").asInt();
        List<String> topics = texts(member.get("topics"));
        ConsumerPartitionAssignor assignor = assignor(name);
        if (generation >= 0)
            assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        ByteBuffer userData = assignor.subscriptionUserData(new TreeSet<>(topics));
        return new Subscription(topics, userData, owned, generation, text(member, "rack"));
    }

    private static Cluster cluster(JsonNode group) {
        Map<String, Node> nodes = new LinkedHashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        group.get("topics").fields().forEachRemaining(topic -> {
            for (int partition = 0; partition < topic.getValue().size(); partition++) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : topic.getValue().get(partition))
                    replicas.add(nodes.computeIfAbsent(rack.asText(), name -> new Node(nodes.size(), "host", 9092, name)));
                if (replicas.isEmpty())
                    replicas.add(Node.noNode());
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), partition, all[0], all, all));
            }
        });
        return new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
    }

    /** The position of each partition's owner among the members, -1 for none; two owners are an error. */
    private static ObjectNode owners(JsonNode group, Map<String, Assignment> assignments) {
        Map<TopicPartition, Integer> ownerOf = new HashMap<>();
        for (int at = 0; at < group.get("members").size(); at++)
            for (TopicPartition partition : assignments.get(group.get("members").get(at).get("id").asText()).partitions())
                if (ownerOf.put(partition, at) != null)
                    throw new IllegalStateException(partition + " has two owners");
        ObjectNode owners = JSON.createObjectNode();
        group.get("topics").fields().forEachRemaining(topic -> {
            ArrayNode positions = owners.putArray(topic.getKey());
            for (int partition = 0; partition < topic.getValue().size(); partition++)
                positions.add(ownerOf.getOrDefault(new TopicPartition(topic.getKey(), partition), -1));
        });
        return owners;
    }

    private static void answerProtocol(JsonNode question, ObjectNode answer) {
        ArrayNode subscriptions = answer.putArray("subscriptions");
        ArrayNode assignments = answer.putArray("assignments");
        List<TopicPartition> owned = new ArrayList<>();
        for (JsonNode claim : question.get("claims"))
            owned.add(new TopicPartition(claim.get(0).asText(), claim.get(1).asInt()));
        Optional<byte[]> userData = text(question, "user_data").map(HexFormat.of()::parseHex);
        for (short version = 0; version <= 3; version++) {
            subscriptions.add(hex(ConsumerProtocol.serializeSubscription(new Subscription(
                texts(question.get("topics")), userData.map(ByteBuffer::wrap).orElse(null), owned,
                question.get("generation").asInt(), text(question, "rack")), version)));
            assignments.add(hex(ConsumerProtocol.serializeAssignment(
                new Assignment(owned, userData.map(ByteBuffer::wrap).orElse(null)), version)));
        }
        StickyAssignor sticky = new StickyAssignor();
        sticky.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", 7, "m", Optional.empty()));
        answer.put("sticky", hex(sticky.subscriptionUserData(Set.of())));
    }

    private static String hex(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }

    private static Optional<String> text(JsonNode node, String field) {
        return node.hasNonNull(field) ? Optional.of(node.get(field).asText()) : Optional.empty();
    }

    private static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(text -> texts.add(text.asText()));
        return texts;
    }
}
