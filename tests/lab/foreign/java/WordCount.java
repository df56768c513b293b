import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * One instance of a Kafka Streams application: `WordCount bootstrap application.id state.dir input output name=value...`
 *
 * It counts the words of input's lines under exactly_once_v2 and writes each new count, without a cache, to output:
 * the word is the key, the count the value. While it runs it prints how many active tasks it has, "tasks 3", whenever
 * its state is RUNNING again. It ends by SIGTERM, with exit code 0.
 */
public final class WordCount {
    public static void main(String[] arguments) throws InterruptedException {
        Properties configs = new Properties();
        configs.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        configs.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        configs.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        configs.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        configs.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        configs.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        configs.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        for (String config : Arrays.copyOfRange(arguments, 5, arguments.length)) {
            String[] parts = config.split("=", 2);
            configs.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(arguments[3], Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[4], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), configs);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                int tasks = streams.metadataForLocalThreads().stream().mapToInt(each -> each.activeTasks().size()).sum();
                System.out.println("tasks " + tasks);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            Runtime.getRuntime().halt(0);
        }));
        streams.start();
        Thread.currentThread().join();
    }
}
