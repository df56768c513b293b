// An open-loop producer: requests on a fixed schedule, latency from the scheduled time to the acknowledgement by all
// in-sync replicas, as stratalog's own bench measures it. Kafka has no tool that does this.
//
//   java -cp 'libs/*' OpenLoop.java <bootstrap> <topic> <partitions> <requests per second> <warm-up s> <s> <file of values>
//
// Prints "<due ns> <latency ns>" for each request of the window, then "errors <n>".

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class OpenLoop {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int rate = Integer.parseInt(args[3]);
        int warm = rate * Integer.parseInt(args[4]);
        int counted = rate * Integer.parseInt(args[5]);
        List<String> lines = Files.readAllLines(Path.of(args[6]), StandardCharsets.US_ASCII);
        byte[][] values = lines.stream().limit(10_000).map(l -> l.getBytes(StandardCharsets.US_ASCII)).toArray(byte[][]::new);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("acks", "all");
        config.put("linger.ms", "0");
        long[] latency = new long[warm + counted];
        AtomicInteger errors = new AtomicInteger();
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            long start = System.nanoTime() + 100_000_000L;
            for (int i = 0; i < warm + counted; i++) {
                int number = i;
                long due = start + i * 1_000_000_000L / rate;
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                producer.send(new ProducerRecord<>(topic, i % partitions, null, values[i % values.length]), (metadata, error) -> {
                    latency[number] = System.nanoTime() - due;
                    if (error != null) {
                        errors.incrementAndGet();
                    }
                });
            }
            producer.flush();
        }
        StringBuilder text = new StringBuilder();
        for (int i = warm; i < warm + counted; i++) {
            text.append((i - warm) * 1_000_000_000L / rate).append(' ').append(latency[i]).append('\n');
        }
        System.out.print(text.append("errors ").append(errors.get()).append('\n'));
    }
}
