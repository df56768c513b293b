import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

/**
 * What Kafka's own classes write: tests/clients/kafka_batches.txt, one batch a line in base64. With the jars of
 * tests/lab/bench/peer on the class path (Kafka 4.3.1): java -cp 'libs/*' KafkaBatches.java
 */
public class KafkaBatches {
    public static void main(String[] arguments) {
        for (CompressionType type : CompressionType.values()) {
            MemoryRecordsBuilder batch = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), (byte) 2,
                Compression.of(type).build(), TimestampType.CREATE_TIME, 0L, -1L, 4711L, (short) 3, 17, true, -1);
            for (int i = 0; i < 40; i++) {
                byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
                byte[] value = i % 7 == 0 ? null : "value ".repeat(i).getBytes();
                Header[] headers = i % 5 != 0 ? new Header[0] : new Header[] {
                    new RecordHeader("trace", new byte[] {1, 2, (byte) i}), new RecordHeader("größe", null)};
                batch.append(1_700_000_000_000L + (i * 37 % 11) * 1000L, key, value, headers);
            }
            print(type.name, batch.build());
        }
        print("commit", MemoryRecords.withEndTransactionMarker(99L, 1_700_000_000_123L, 6, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 12)));
    }

    private static void print(String name, MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        System.out.println(name + " " + Base64.getEncoder().encodeToString(bytes));
    }
}
