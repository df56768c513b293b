import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.DecoderFactory;

/**
 * A line {"writer": schema, "reader": schema, "payload": hex} in; as a line out {"value": value}, or {"error": class}, or
 * {"refused": class} for what is no schema. A union is {"branch", "value"}; bytes, floats and doubles are their bits.
 */
public class AvroValues {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    PrintStream out = new PrintStream(System.out, false, "UTF-8");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode asked = JSON.readTree(line);
      ObjectNode answer = JSON.createObjectNode();
      Schema writer = null;
      Schema reader = null;
      try {
        writer = new Schema.Parser().parse(asked.get("writer").toString());
        reader = new Schema.Parser().parse(asked.get("reader").toString());
      } catch (RuntimeException refused) {
        answer.put("refused", refused.getClass().getSimpleName());
      }
      if (reader != null) {
        try {
          byte[] payload = HexFormat.of().parseHex(asked.get("payload").textValue());
          Object read = new GenericDatumReader<Object>(writer, reader)
              .read(null, DecoderFactory.get().binaryDecoder(payload, null));
          answer.set("value", shown(reader, read));
        } catch (Exception | StackOverflowError | OutOfMemoryError wrong) {
          answer.put("error", wrong.getClass().getSimpleName());
        }
      }
      out.println(JSON.writeValueAsString(answer));
    }
    out.flush();
  }

  private static JsonNode shown(Schema schema, Object value) {
    switch (schema.getType()) {
      case UNION:
        int branch = GenericData.get().resolveUnion(schema, value);
        ObjectNode chosen = JSON.createObjectNode().put("branch", branch);
        chosen.set("value", shown(schema.getTypes().get(branch), value));
        return chosen;
      case RECORD:
        ObjectNode fields = JSON.createObjectNode();
        for (Schema.Field field : schema.getFields()) {
          fields.set(field.name(), shown(field.schema(), ((IndexedRecord) value).get(field.pos())));
        }
        return fields;
      case ARRAY:
        ArrayNode items = JSON.createArrayNode();
        ((List<?>) value).forEach(item -> items.add(shown(schema.getElementType(), item)));
        return items;
      case MAP:
        ObjectNode entries = JSON.createObjectNode();
        ((Map<?, ?>) value).forEach((key, item) -> entries.set(key.toString(), shown(schema.getValueType(), item)));
        return entries;
      case BYTES:
        ByteBuffer bytes = ((ByteBuffer) value).duplicate();
        byte[] copied = new byte[bytes.remaining()];
        bytes.get(copied);
        return JSON.getNodeFactory().textNode(HexFormat.of().formatHex(copied));
      case FIXED:
        return JSON.getNodeFactory().textNode(HexFormat.of().formatHex(((GenericFixed) value).bytes()));
      case FLOAT:
        return JSON.getNodeFactory().textNode(String.format("%08x", Float.floatToIntBits((Float) value)));
      case DOUBLE:
        return JSON.getNodeFactory().textNode(String.format("%016x", Double.doubleToLongBits((Double) value)));
      case INT:
        return JSON.getNodeFactory().numberNode((Integer) value);
      case LONG:
        return JSON.getNodeFactory().numberNode((Long) value);
      case BOOLEAN:
        return JSON.getNodeFactory().booleanNode((Boolean) value);
      case NULL:
        return JSON.getNodeFactory().nullNode();
      default:
        return JSON.getNodeFactory().textNode(value.toString());
    }
  }
}
