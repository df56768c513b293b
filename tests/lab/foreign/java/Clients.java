import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * Kafka's Java clients: `Clients what bootstrap topic ...`. Ends with an exception when something is wrong.
 *
 * produce topic codec           acks=all, 1 and 0; read by assignment: from the beginning, an offset, a time
 * idempotence topic             many small batches under way at once arrive once and in order
 * share topic name=value ...    a group of one member, two, and one again; the configs are its members'
 * migrate topic name=value ...  members leave and others join, each with the other protocol than the one before
 * come-back topic name=value    a static member ends and starts again
 * pattern topic name=value      a subscription by a pattern; topic-2 is there, too
 * transactions source target    read, process, write with offsets; every third transaction is aborted
 * fence topic                   a producer's successor fences it
 */
public final class Clients {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long WAIT_MS = 60_000;
    private static final long FIRST_MS = 1_700_000_000_000L;
    private static final int COUNT = 200;
    private static final Set<String> EAGER = Set.of("org.apache.kafka.clients.consumer.RangeAssignor");

    private final StringClients kafka;
    private final String topic;

    private Clients(String bootstrap, String topic) {
        this.kafka = new StringClients(bootstrap);
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[1], arguments[2]);
        String[] more = Arrays.copyOfRange(arguments, 3, arguments.length);
        switch (arguments[0]) {
            case "produce" -> clients.produce(more[0]);
            case "idempotence" -> clients.idempotence();
            case "share" -> clients.share(configs(more));
            case "migrate" -> clients.migrate(configs(more));
            case "come-back" -> clients.comeBack(configs(more));
            case "pattern" -> clients.pattern(configs(more));
            case "transactions" -> clients.transactions(more[0]);
            case "fence" -> clients.fence();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    // -- producing and reading -------------------------------------------------------------------------------

    private void produce(String codec) throws Exception {
        Map<Integer, List<String>> written = new HashMap<>();
        for (String acks : List.of("all", "1", "0")) {
            var configs = Map.of("compression.type", codec, "acks", acks, "enable.idempotence", "false");
            try (var producer = kafka.producer(configs)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int number = 0; number < COUNT; number++) {
                    List<String> values = written.computeIfAbsent(number % 3, each -> new ArrayList<>());
                    long time = FIRST_MS + values.size();
                    String value = acks + "-" + "x".repeat(number % 50) + number;
                    var record = new ProducerRecord<>(topic, number % 3, time, "key-" + number, value);
                    record.headers().add("acks", acks.getBytes(StandardCharsets.UTF_8));
                    sent.add(producer.send(record));
                    values.add(value);
                }
                producer.flush();
                for (var each : sent) {
                    check(each.get().hasOffset() != acks.equals("0"), "the offset of " + each.get());
                }
            }
        }
        readByAssignment(written);
    }

    private void readByAssignment(Map<Integer, List<String>> written) {
        int total = written.values().stream().mapToInt(List::size).sum();
        List<TopicPartition> partitions = partitions(written.size());
        try (var consumer = consumer(Map.of())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            pollUntil(List.of(consumer), found, () -> found.size() >= total, "all of " + topic);
            Map<Integer, List<String>> read = new HashMap<>();
            for (var each : found) {
                List<String> values = read.computeIfAbsent(each.partition(), partition -> new ArrayList<>());
                check(each.offset() == values.size() && each.timestamp() == FIRST_MS + each.offset(), each.toString());
                String acks = new String(each.headers().lastHeader("acks").value(), StandardCharsets.UTF_8);
                check(each.value().startsWith(acks + "-") && each.key().startsWith("key-"), each.toString());
                values.add(each.value());
            }
            check(read.equals(written), "what was read of " + topic);
            TopicPartition first = partitions.get(0);
            Map<TopicPartition, OffsetAndTimestamp> at = consumer.offsetsForTimes(Map.of(first, FIRST_MS + 7));
            check(at.get(first).offset() == 7, "the offset of a time: " + at);
            check(consumer.beginningOffsets(partitions).get(first) == 0, "the first offset");
            check(consumer.endOffsets(partitions).get(first) == written.get(0).size(), "the end");
            consumer.seek(first, 11);
            found.clear();
            pollUntil(List.of(consumer), found, () -> !found.isEmpty(), "a record after seek");
            check(found.get(0).offset() == 11, "the first after seek: " + found.get(0));
            check(consumer.position(first) > 11, "the position after seek: " + consumer.position(first));
        }
    }

    private void idempotence() throws Exception {
        int count = 10 * COUNT;
        try (var producer = kafka.producer(Map.of("enable.idempotence", "true", "batch.size", "300", "linger.ms", "0"))) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, number % 3, null, String.valueOf(number)));
            }
        }
        try (var consumer = consumer(Map.of())) {
            consumer.assign(partitions(3));
            consumer.seekToBeginning(consumer.assignment());
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            pollUntil(List.of(consumer), found, () -> found.size() >= count, "all of " + topic);
            for (var each : found) {
                check(each.value().equals(String.valueOf(each.offset() * 3 + each.partition())), each.toString());
            }
        }
    }

    // -- groups ----------------------------------------------------------------------------------------------

    /** A consumer, and the partitions of each call of its listener. */
    private final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final List<Set<TopicPartition>> revoked = new ArrayList<>();

        Member(Map<String, String> configs) {
            consumer = consumer(configs);
        }

        Member subscribed() {
            consumer.subscribe(List.of(topic), this);
            return this;
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked.add(new HashSet<>(partitions));
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        }

        public void close() {
            consumer.close();
        }
    }

    private void share(Map<String, String> configs) throws Exception {
        int partitions = 4;
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        Member first = new Member(configs).subscribed();
        Set<String> values = write("first", partitions);
        pollUntil(List.of(first.consumer), found, () -> found.size() >= COUNT, "one member reads all");
        check(values(found).equals(values), "what one member read");
        first.consumer.commitSync();
        try (Member second = new Member(configs).subscribed()) {
            var both = List.of(first.consumer, second.consumer);
            pollUntil(both, found, () -> isShared(both, partitions), "two members share");
            Set<TopicPartition> revoked = first.revoked.stream().flatMap(Set::stream).collect(Collectors.toSet());
            boolean isEager = EAGER.contains(configs.getOrDefault("partition.assignment.strategy", ""));
            Set<TopicPartition> expected = isEager ? Set.copyOf(partitions(partitions)) : second.consumer.assignment();
            check(revoked.equals(expected), "revoked " + first.revoked);
            found.clear();
            Set<String> more = write("second", partitions);
            pollUntil(both, found, () -> found.size() >= COUNT, "two members read all");
            check(values(found).equals(more) && found.size() == COUNT, "what two members read");
            both.forEach(KafkaConsumer::commitSync);
            first.close();
            var one = List.of(second.consumer);
            pollUntil(one, found, () -> second.consumer.assignment().size() == partitions, "the one that stays");
            found.clear();
            Set<String> last = write("third", partitions);
            pollUntil(one, found, () -> found.size() >= COUNT, "the one that stays reads all");
            check(values(found).equals(last) && found.size() == COUNT, "what one member read at last");
            second.consumer.commitSync(Duration.ofMillis(WAIT_MS));
            var committed = second.consumer.committed(Set.copyOf(partitions(partitions)));
            for (OffsetAndMetadata each : committed.values()) {
                check(each.offset() == 3 * COUNT / partitions, "committed " + committed);
            }
        }
    }

    private void migrate(Map<String, String> configs) throws Exception {
        int partitions = 4;
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        Set<String> written = new HashSet<>();
        Member last = new Member(with(configs, "group.protocol", "classic")).subscribed();
        for (String protocol : List.of("consumer", "consumer", "classic", "classic")) {
            written.addAll(write("before " + written.size(), partitions));
            pollUntil(List.of(last.consumer), found, () -> found.size() >= written.size(), "one member reads all");
            last.consumer.commitSync(Duration.ofMillis(WAIT_MS));
            Member next = new Member(with(configs, "group.protocol", protocol)).subscribed();
            var both = List.of(last.consumer, next.consumer);
            pollUntil(both, found, () -> isShared(both, partitions), "two members share");
            written.addAll(write("while " + written.size(), partitions));
            pollUntil(both, found, () -> found.size() >= written.size(), "two members read all");
            both.forEach(KafkaConsumer::commitSync);
            last.close();
            last = next;
            var one = List.of(next.consumer);
            pollUntil(one, found, () -> next.consumer.assignment().size() == partitions, "the one that stays");
        }
        check(values(found).equals(written) && found.size() == written.size(), "each record is read once");
        for (OffsetAndMetadata each : last.consumer.committed(Set.copyOf(partitions(partitions))).values()) {
            check(each.offset() == written.size() / partitions, "committed " + each);
        }
        last.close();
    }

    private void comeBack(Map<String, String> configs) throws Exception {
        int partitions = 4;
        Member first = new Member(with(configs, "group.instance.id", "one")).subscribed();
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (Member second = new Member(with(configs, "group.instance.id", "two")).subscribed()) {
            var both = List.of(first.consumer, second.consumer);
            pollUntil(both, found, () -> isShared(both, partitions), "two members share");
            Set<TopicPartition> before = Set.copyOf(first.consumer.assignment());
            Set<TopicPartition> kept = Set.copyOf(second.consumer.assignment());
            int revocations = second.revoked.size();
            first.close();
            try (Member again = new Member(with(configs, "group.instance.id", "one")).subscribed()) {
                var now = List.of(again.consumer, second.consumer);
                pollUntil(now, found, () -> again.consumer.assignment().equals(before), "the member is back");
                Set<String> values = write("back", partitions);
                pollUntil(now, found, () -> found.size() >= COUNT, "both read");
                check(values(found).equals(values), "what both read");
                check(second.consumer.assignment().equals(kept), "the other one's " + second.consumer.assignment());
                check(second.revoked.size() == revocations, "the other one's revoked " + second.revoked);
            }
        }
    }

    private void pattern(Map<String, String> configs) throws Exception {
        Set<String> expected = Set.of(topic, topic + "-2");
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (Member member = new Member(configs)) {
            String pattern = topic + "(-[0-9])?";
            if (configs.getOrDefault("group.protocol", "classic").equals("consumer")) {
                member.consumer.subscribe(new SubscriptionPattern(pattern), member);
            } else {
                member.consumer.subscribe(java.util.regex.Pattern.compile(pattern), member);
            }
            BooleanSupplier isAssigned = () -> expected.equals(
                member.consumer.assignment().stream().map(TopicPartition::topic).collect(Collectors.toSet()));
            pollUntil(List.of(member.consumer), found, isAssigned, "topics of the pattern " + pattern);
            Set<String> values = write("matched", 1);
            pollUntil(List.of(member.consumer), found, () -> found.size() >= COUNT, "records of the pattern");
            check(values(found).equals(values), "what was read");
        }
    }

    private boolean isShared(List<KafkaConsumer<String, String>> members, int partitions) {
        Set<TopicPartition> all = new HashSet<>();
        members.forEach(member -> all.addAll(member.assignment()));
        return all.size() == partitions
            && members.stream().allMatch(member -> member.assignment().size() == partitions / members.size());
    }

    // -- transactions ----------------------------------------------------------------------------------------

    private void transactions(String target) throws Exception {
        write("input", 3);
        String group = "group-" + target;
        List<String> output = new ArrayList<>();
        var reading = Map.of("group.id", group, "isolation.level", "read_committed", "max.poll.records", "17");
        try (var producer = kafka.producer(Map.of("transactional.id", "txn-" + target)); var consumer = consumer(reading)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            long end = System.currentTimeMillis() + WAIT_MS;
            for (int number = 0; output.size() < COUNT; ) {
                check(System.currentTimeMillis() < end, "waited in vain: " + output.size() + " of " + COUNT + " records");
                var records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                List<String> values = new ArrayList<>();
                for (var each : records) {
                    producer.send(new ProducerRecord<>(target, each.partition(), each.key(), each.value() + "!"));
                    values.add(each.value() + "!");
                    var place = new TopicPartition(topic, each.partition());
                    offsets.put(place, new OffsetAndMetadata(each.offset() + 1, "by " + each.value()));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (number++ % 3 == 2) {
                    producer.abortTransaction();
                    for (TopicPartition each : offsets.keySet()) {
                        OffsetAndMetadata committed = consumer.committed(Set.of(each)).get(each);
                        consumer.seek(each, committed == null ? 0 : committed.offset());
                    }
                } else {
                    producer.commitTransaction();
                    output.addAll(values);
                }
            }
        }
        readCommitted(target, output, group);
    }

    private void readCommitted(String target, List<String> output, String group) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (var consumer = consumer(Map.of("group.id", group, "isolation.level", "read_committed"))) {
            var places = IntStream.range(0, 3).mapToObj(each -> new TopicPartition(target, each)).toList();
            consumer.assign(places);
            consumer.seekToBeginning(places);
            var ends = consumer.endOffsets(places);
            BooleanSupplier isAtEnd = () -> places.stream().allMatch(each -> consumer.position(each) >= ends.get(each));
            pollUntil(List.of(consumer), found, isAtEnd, "the end of " + target);
            check(values(found).equals(new TreeSet<>(output)) && found.size() == COUNT, "committed: " + found.size());
            var committed = consumer.committed(Set.copyOf(partitions(3)));
            long sum = committed.values().stream().filter(Objects::nonNull).mapToLong(OffsetAndMetadata::offset).sum();
            check(sum == COUNT, "committed offsets: " + committed);
        }
        try (var consumer = consumer(Map.of("isolation.level", "read_uncommitted"))) {
            consumer.assign(List.of(new TopicPartition(target, 0)));
            consumer.seekToBeginning(consumer.assignment());
            found.clear();
            pollUntil(List.of(consumer), found, () -> found.size() > 0, "uncommitted records");
        }
    }

    private void fence() throws Exception {
        var configs = Map.of("transactional.id", "txn-" + topic);
        try (var old = kafka.producer(configs); var successor = kafka.producer(configs)) {
            old.initTransactions();
            old.beginTransaction();
            old.send(new ProducerRecord<>(topic, 0, null, "old")).get();
            successor.initTransactions();
            successor.beginTransaction();
            successor.send(new ProducerRecord<>(topic, 0, null, "new")).get();
            boolean isFenced = false;
            try {
                old.send(new ProducerRecord<>(topic, 0, null, "late"));
                old.commitTransaction();
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                isFenced = true;
            }
            check(isFenced, "the old producer could commit");
            successor.commitTransaction();
        }
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (var consumer = consumer(Map.of("isolation.level", "read_committed"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            pollUntil(List.of(consumer), found, () -> !found.isEmpty(), "the successor's record");
            check(values(found).equals(Set.of("new")), "committed: " + values(found));
        }
    }

    // -- tools -----------------------------------------------------------------------------------------------

    /** Commits nothing by itself, unless the configs say so. */
    private KafkaConsumer<String, String> consumer(Map<String, String> configs) {
        Map<String, String> all = new HashMap<>(Map.of("enable.auto.commit", "false"));
        all.putAll(configs);
        return kafka.consumer(all);
    }

    private static Map<String, String> configs(String[] arguments) {
        return Arrays.stream(arguments).map(each -> each.split("=", 2))
            .collect(Collectors.toMap(each -> each[0], each -> each[1]));
    }

    private static Map<String, String> with(Map<String, String> configs, String name, String value) {
        Map<String, String> all = new HashMap<>(configs);
        all.put(name, value);
        return all;
    }

    private List<TopicPartition> partitions(int count) {
        return IntStream.range(0, count).mapToObj(each -> new TopicPartition(topic, each)).toList();
    }

    /** Write so many records to all partitions; their values. */
    private Set<String> write(String prefix, int partitions) throws Exception {
        Set<String> values = new TreeSet<>();
        try (var producer = kafka.producer(Map.of("linger.ms", "5"))) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, "key", prefix + "-" + number));
                values.add(prefix + "-" + number);
            }
        }
        return values;
    }

    private static Set<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void pollUntil(
        List<KafkaConsumer<String, String>> consumers,
        List<ConsumerRecord<String, String>> found,
        BooleanSupplier isSo,
        String what
    ) {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!isSo.getAsBoolean()) {
            check(System.currentTimeMillis() < end, "waited in vain: " + what + ", " + found.size() + " records");
            consumers.forEach(each -> each.poll(POLL).forEach(found::add));
        }
    }

    private static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new IllegalStateException(what);
        }
    }
}
