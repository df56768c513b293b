import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A producer of a steady rate and the members of a group, until a line comes on standard input.
 *
 * RollingClient bootstrap topic partitions rate group.protocol members
 *
 * It prints `ready` when each member has read from the topic, and at the end a line of JSON: records, errors, and how
 * long no acknowledgement, or no record of a poll, came from a partition. Configs are Kafka's defaults but for group.id,
 * group.protocol and auto.offset.reset=earliest.
 */
public final class RollingClient {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final double NOTED_MS = 300;
    /** A member that joined last may have its partitions with its second heartbeat only. */
    private static final long SETTLED_MS = 10_000;
    private static final long SECOND_NS = 1_000_000_000L;

    private final StringClients kafka;
    private final String topic;
    private final int partitions;
    private final Map<String, Integer> errors = new ConcurrentSkipListMap<>();
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong doubled = new AtomicLong();
    private final Set<String> members = ConcurrentHashMap.newKeySet();
    private final BitSet[] sent;
    private final BitSet[] read;
    private final Pauses acknowledgements;
    private final Pauses polls;
    private volatile long latencyMaxMs;
    private volatile boolean isOver;
    private volatile boolean isMeasured;

    private RollingClient(StringClients kafka, String topic, int partitions) {
        this.kafka = kafka;
        this.topic = topic;
        this.partitions = partitions;
        sent = bits();
        read = bits();
        acknowledgements = new Pauses("acknowledgement", partitions);
        polls = new Pauses("poll", partitions);
    }

    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[2]);
        RollingClient client = new RollingClient(new StringClients(arguments[0]), arguments[1], partitions);
        List<Thread> threads = new ArrayList<>();
        for (int member = 0; member < Integer.parseInt(arguments[5]); member++) {
            threads.add(new Thread(() -> client.read(arguments[4]), "member-" + member));
        }
        Thread producer = new Thread(() -> client.produce(Integer.parseInt(arguments[3])), "producer");
        threads.forEach(Thread::start);
        producer.start();
        while (client.members.size() < threads.size()) {
            Thread.sleep(20);
        }
        client.awaitAllRead(1);
        Thread.sleep(SETTLED_MS);
        client.isMeasured = true;
        System.out.println("ready");
        new Scanner(System.in, StandardCharsets.UTF_8).hasNextLine();
        client.isMeasured = false;
        client.isOver = true;
        producer.join();
        client.awaitAllRead(0);
        System.out.println(new ObjectMapper().writeValueAsString(client.result()));
        System.exit(0);
    }

    private BitSet[] bits() {
        BitSet[] made = new BitSet[partitions];
        for (int partition = 0; partition < partitions; partition++) {
            made[partition] = new BitSet();
        }
        return made;
    }

    /** Until all acknowledged records were read, at least `least` of each partition; a minute at most. */
    private void awaitAllRead(int least) throws InterruptedException {
        long end = System.nanoTime() + 60 * SECOND_NS;
        while (System.nanoTime() < end && !isAllRead(least)) {
            Thread.sleep(20);
        }
    }

    private boolean isAllRead(int least) {
        for (int partition = 0; partition < partitions; partition++) {
            synchronized (read[partition]) {
                if (read[partition].cardinality() < least || (least == 0 && missing(partition) > 0)) {
                    return false;
                }
            }
        }
        return true;
    }

    private int missing(int partition) {
        synchronized (sent[partition]) {
            BitSet lacking = (BitSet) sent[partition].clone();
            lacking.andNot(read[partition]);
            return lacking.cardinality();
        }
    }

    private void produce(int rate) {
        try (KafkaProducer<String, String> producer = kafka.producer(Map.of())) {
            long begun = System.nanoTime();
            for (int number = 0; !isOver; number++) {
                long due = begun + number * SECOND_NS / rate;
                while (System.nanoTime() < due) {
                    LockSupport.parkNanos(due - System.nanoTime());
                }
                int partition = number % partitions;
                int counted = number / partitions;
                String value = String.format("%-92d", counted);
                producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                    if (error != null) {
                        note("send", error);
                        return;
                    }
                    acknowledged.incrementAndGet();
                    acknowledgements.came(partition, isMeasured);
                    synchronized (sent[partition]) {
                        sent[partition].set(counted);
                    }
                });
            }
        } catch (RuntimeException error) {
            note("producer", error);
        }
    }

    private void read(String protocol) {
        try (var consumer = kafka.consumer(Map.of("group.id", "readers", "group.protocol", protocol))) {
            consumer.subscribe(List.of(topic));
            while (true) {
                try {
                    for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                        came(each);
                    }
                } catch (RuntimeException error) {
                    note("poll", error);
                }
            }
        } catch (RuntimeException error) {
            note("consumer", error);
        }
    }

    private void came(ConsumerRecord<String, String> record) {
        members.add(Thread.currentThread().getName());
        int number = Integer.parseInt(record.value().trim());
        BitSet seen = read[record.partition()];
        synchronized (seen) {
            if (seen.get(number)) {
                doubled.incrementAndGet();
            }
            seen.set(number);
        }
        if (isMeasured) {
            latencyMaxMs = Math.max(latencyMaxMs, System.currentTimeMillis() - record.timestamp());
        }
        polls.came(record.partition(), isMeasured);
    }

    private void note(String where, Exception error) {
        System.err.println(LocalTime.now() + " " + where + ": " + error);
        errors.merge(where + " " + error.getClass().getSimpleName(), 1, Integer::sum);
    }

    private Map<String, Object> result() {
        int lost = 0;
        for (int partition = 0; partition < partitions; partition++) {
            lost += missing(partition);
        }
        return Map.of(
            "acknowledged", acknowledged.get(),
            "errors", errors,
            "unread", lost,
            "read_twice", doubled.get(),
            "latency_ms_max", latencyMaxMs,
            "acknowledgement_pause_ms_max", acknowledgements.longest(),
            "poll_pause_ms_max", polls.longest()
        );
    }

    /** How long nothing came of a partition. */
    private static final class Pauses {
        private final String what;
        private final long[] last;
        private double longestMs;

        Pauses(String what, int partitions) {
            this.what = what;
            last = new long[partitions];
        }

        synchronized void came(int partition, boolean isMeasured) {
            long now = System.nanoTime();
            double pauseMs = (now - last[partition]) / 1e6;
            if (last[partition] != 0 && isMeasured) {
                longestMs = Math.max(longestMs, pauseMs);
                if (pauseMs > NOTED_MS) {
                    System.err.printf("%s no %s of partition %d for %.0f ms%n", LocalTime.now(), what, partition, pauseMs);
                }
            }
            last[partition] = now;
        }

        synchronized long longest() {
            return Math.round(longestMs);
        }
    }
}
