import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * A Java client of the storm, until a line comes on its standard input: `client.py` with Kafka's own library.
 *
 * StormClient producer|reader|copier name bootstrap history
 *
 * It prints `ready` when it works, and at the end a line of JSON with what it counted. Configs are Kafka's defaults
 * but for group.id, group.protocol, auto.offset.reset=earliest, isolation.level and enable.auto.commit of a copier,
 * and its transactional.id.
 */
public final class StormClient {
    private static final String SOURCE = "storm";
    private static final String COPY = "copy";
    private static final int PARTITIONS = 6;
    private static final long PAUSE_MS = 50;
    private static final int OUTSTANDING_MAX = 500;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int UNKNOWN = -1;

    private final String name;
    private final StringClients kafka;
    private final History history;
    private final Map<String, Integer> counts = new ConcurrentSkipListMap<>();
    private volatile boolean isOver;

    private StormClient(String name, String bootstrap, History history) {
        this.name = name;
        this.kafka = new StringClients(bootstrap);
        this.history = history;
        Thread end = new Thread(this::awaitEnd, "end");
        end.setDaemon(true);
        end.start();
    }

    public static void main(String[] arguments) throws Exception {
        try (History history = new History(Path.of(arguments[3]))) {
            StormClient client = new StormClient(arguments[1], arguments[2], history);
            switch (arguments[0]) {
                case "producer" -> client.produce();
                case "reader" -> client.read();
                case "copier" -> client.copy();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
            System.out.println(new ObjectMapper().writeValueAsString(client.counts));
        }
    }

    private void awaitEnd() {
        new Scanner(System.in, StandardCharsets.UTF_8).hasNextLine();
        isOver = true;
    }

    // -- the producer ----------------------------------------------------------------------------------------

    /** Idempotent, acks=all: a record to each partition every 50 ms, `name-partition:number`. */
    private void produce() throws InterruptedException {
        AtomicInteger outstanding = new AtomicInteger();
        try (var producer = kafka.producer(Map.of())) {
            System.out.println("ready");
            for (int number = 1; !isOver; number++) {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    send(producer, name + "-" + partition + ":" + number, partition, outstanding);
                }
                do {
                    Thread.sleep(PAUSE_MS);
                } while (outstanding.get() > OUTSTANDING_MAX && !isOver);
            }
            producer.flush();
        }
        counts.put("left", outstanding.get());
    }

    private void send(KafkaProducer<String, String> producer, String value, int partition, AtomicInteger outstanding) {
        history.add(name, "send", UNKNOWN, UNKNOWN, UNKNOWN, value);
        outstanding.incrementAndGet();
        producer.send(new ProducerRecord<>(SOURCE, partition, null, value), (metadata, error) -> {
            outstanding.decrementAndGet();
            if (error == null) {
                count("acknowledged", 1);
                count("without an offset", metadata.hasOffset() ? 0 : 1);
                history.add(name, "ack", metadata.partition(), metadata.offset(), UNKNOWN, value);
            } else {
                count("failed", 1);
                history.add(name, "fail", UNKNOWN, UNKNOWN, UNKNOWN, value + " " + error);
            }
        });
    }

    // -- the member of a group -------------------------------------------------------------------------------

    /** The group is what stands before the last `-` of the name; it ends with its protocol. It commits by itself. */
    private void read() {
        String group = name.substring(0, name.lastIndexOf('-'));
        String protocol = group.substring(group.lastIndexOf('-') + 1);
        try (var consumer = kafka.consumer(Map.of("group.id", group, "group.protocol", protocol))) {
            consumer.subscribe(List.of(SOURCE), new Seeks());
            System.out.println("ready");
            while (!isOver) {
                for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                    count("polled", 1);
                    int epoch = each.leaderEpoch().orElse(UNKNOWN);
                    history.add(name, "poll", each.partition(), each.offset(), epoch, each.value());
                }
            }
        }
    }

    /** An assigned partition begins at its committed offset. */
    private final class Seeks implements ConsumerRebalanceListener {
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                history.add(name, "seek", each.partition(), UNKNOWN, UNKNOWN, "");
            }
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        }
    }

    // -- the copier ------------------------------------------------------------------------------------------

    /** Copies every record of the source to the same partition of the copy, in transactions with its offsets. */
    private void copy() throws InterruptedException {
        var reading = Map.of("group.id", "copiers", "isolation.level", "read_committed", "enable.auto.commit", "false");
        KafkaProducer<String, String> producer = null;
        try (var consumer = kafka.consumer(reading)) {
            consumer.subscribe(List.of(SOURCE));
            producer = transactional(null);
            System.out.println("ready");
            while (!isOver) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    copy(consumer, producer, records);
                    count("copied", records.count());
                    count("transactions", 1);
                } catch (KafkaException failure) {
                    note("copy: " + failure);
                    count("aborted " + failure.getClass().getSimpleName(), 1);
                    producer = after(producer);
                    rewind(consumer);
                }
            }
        } finally {
            if (producer != null) {
                producer.close();
            }
        }
    }

    private void copy(
        KafkaConsumer<String, String> consumer,
        KafkaProducer<String, String> producer,
        ConsumerRecords<String, String> records
    ) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> each : records) {
            producer.send(new ProducerRecord<>(COPY, each.partition(), null, each.value()));
            offsets.put(new TopicPartition(SOURCE, each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        retried("commit", producer::commitTransaction);
    }

    /** As an application goes on after an error: the transaction is aborted, or, if it cannot be, by a new producer. */
    private KafkaProducer<String, String> after(KafkaProducer<String, String> producer) {
        try {
            retried("abort", producer::abortTransaction);
            return producer;
        } catch (KafkaException fatal) {
            note("abort: " + fatal);
            count("fatal " + fatal.getClass().getSimpleName(), 1);
            return transactional(producer);
        }
    }

    /** A producer that may begin transactions, in the place of an earlier one. */
    private KafkaProducer<String, String> transactional(KafkaProducer<String, String> earlier) {
        if (earlier != null) {
            earlier.close(Duration.ZERO);
        }
        var made = kafka.producer(Map.of("transactional.id", name));
        retried("init", made::initTransactions);
        return made;
    }

    /** As KafkaProducer says: a call that took longer than max.block.ms is made again. */
    private void retried(String what, Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                note(what + " again: " + late);
                count("again " + what, 1);
            }
        }
    }

    /** To the committed offsets: what was aborted is read again. */
    private void rewind(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>();
        retried("offsets", () -> committed.putAll(consumer.committed(assigned)));
        for (TopicPartition each : assigned) {
            OffsetAndMetadata offset = committed.get(each);
            if (offset == null) {
                consumer.seekToBeginning(List.of(each));
            } else {
                consumer.seek(each, offset.offset());
            }
        }
    }

    // -- tools -----------------------------------------------------------------------------------------------

    private void count(String what, int more) {
        counts.merge(what, more, Integer::sum);
    }

    private static void note(String text) {
        System.err.println("[" + java.time.LocalDateTime.now() + "] " + text);
    }

    /** The file of `clients/history`: a line is a JSON array of an event's fields, and one write at the file's end. */
    private static final class History implements AutoCloseable {
        private static final ObjectMapper JSON = new ObjectMapper();
        private final FileChannel file;

        History(Path path) throws IOException {
            file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }

        /** Dated by the monotonic clock of the machine, which Python's `time.monotonic` reads, too. */
        void add(String client, String kind, int partition, long offset, int epoch, String value) {
            long timeMs = System.nanoTime() / 1_000_000;
            try {
                String line = JSON.writeValueAsString(List.of(timeMs, client, kind, partition, offset, epoch, value));
                file.write(ByteBuffer.wrap((line + "\n").getBytes(StandardCharsets.UTF_8)));
            } catch (IOException failure) {
                throw new IllegalStateException(failure);
            }
        }

        public void close() throws IOException {
            file.close();
        }
    }
}
