import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** A line {"reader": schema, "writer": schema} in, Avro's verdict as a line out: its incompatibilities, in order. */
public class AvroVerdicts {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode asked = json.readTree(line);
      ObjectNode answer = json.createObjectNode();
      ArrayNode found = answer.putArray("incompatibilities");
      try {
        Schema reader = new Schema.Parser().parse(asked.get("reader").toString());
        Schema writer = new Schema.Parser().parse(asked.get("writer").toString());
        for (SchemaCompatibility.Incompatibility each :
            SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult().getIncompatibilities()) {
          found.add(each.getLocation() + ": " + each.getType());
        }
      } catch (RuntimeException refused) {
        answer.put("error", refused.getClass().getSimpleName() + ": " + refused.getMessage());
      }
      System.out.println(json.writeValueAsString(answer));
    }
  }
}
