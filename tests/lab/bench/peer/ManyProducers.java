// Several producers at once in one process, each with its own connections, as fast as they can, acks=all.
//
//   java -cp 'libs/*' ManyProducers.java <bootstrap> <topic> <producers> <records each> <warm-up records each> <file of values> [<config>=<value> ...]
//
// Prints "records/s <n>" of all together, from the first send to the last acknowledgement.

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ManyProducers {
    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[2]);
        int records = Integer.parseInt(args[3]);
        int warm = Integer.parseInt(args[4]);
        List<String> lines = Files.readAllLines(Path.of(args[5]), StandardCharsets.ISO_8859_1);
        byte[][] values = lines.stream().map(l -> l.getBytes(StandardCharsets.ISO_8859_1)).toArray(byte[][]::new);
        long[] times = new long[2];
        AtomicInteger barriers = new AtomicInteger();
        AtomicInteger errors = new AtomicInteger();
        CyclicBarrier barrier = new CyclicBarrier(producers, () -> times[barriers.getAndIncrement()] = System.nanoTime());
        List<Thread> threads = new ArrayList<>();
        for (int p = 0; p < producers; p++) {
            Thread thread = new Thread(() -> {
                Properties config = new Properties();
                config.put("bootstrap.servers", args[0]);
                config.put("acks", "all");
                for (int i = 6; i < args.length; i++) {
                    config.put(args[i].substring(0, args[i].indexOf('=')), args[i].substring(args[i].indexOf('=') + 1));
                }
                try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
                    send(producer, args[1], values, warm, errors);
                    barrier.await();
                    send(producer, args[1], values, records, errors);
                    barrier.await();
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (errors.get() > 0 || barriers.get() < 2) {
            throw new IllegalStateException(errors.get() + " records failed");
        }
        System.out.println("records/s " + producers * (long) records * 1_000_000_000L / (times[1] - times[0]));
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, byte[][] values, int count, AtomicInteger errors) {
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, values[i % values.length]), (metadata, error) -> {
                if (error != null) {
                    errors.incrementAndGet();
                }
            });
        }
        producer.flush();
    }
}
