import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Producers and consumers of strings at one cluster, with Kafka's defaults but for the configs that are given. */
record StringClients(String bootstrap) {
    KafkaProducer<String, String> producer(Map<String, String> configs) {
        return new KafkaProducer<>(properties(configs), new StringSerializer(), new StringSerializer());
    }

    /** It begins at the start of a partition where its group has no offset. */
    KafkaConsumer<String, String> consumer(Map<String, String> configs) {
        Properties all = properties(configs);
        all.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private Properties properties(Map<String, String> configs) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.putAll(configs);
        return all;
    }
}
