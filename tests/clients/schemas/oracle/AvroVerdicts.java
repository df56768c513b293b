import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaValidationException;
import org.apache.avro.SchemaValidator;
import org.apache.avro.SchemaValidatorBuilder;

/**
 * A line {"reader": schema, "writer": schema} in, Avro's verdict as a line out: its incompatibilities, in order. Or a
 * line {"new": schema, "earlier": [schemas, newest first]}: whether each of Avro's validators accepts it, in order.
 */
public class AvroVerdicts {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode asked = json.readTree(line);
      ObjectNode answer = json.createObjectNode();
      ArrayNode found = answer.putArray("incompatibilities");
      try {
        if (asked.has("earlier")) {
          answer.put("accepted", accepted(asked));
        } else {
          Schema reader = parsed(asked.get("reader"));
          Schema writer = parsed(asked.get("writer"));
          for (SchemaCompatibility.Incompatibility each :
              SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult().getIncompatibilities()) {
            found.add(each.getLocation() + ": " + each.getType());
          }
        }
      } catch (RuntimeException refused) {
        answer.put("error", refused.getClass().getSimpleName() + ": " + refused.getMessage());
      }
      System.out.println(json.writeValueAsString(answer));
    }
  }

  /**
   * BACKWARD, its transitive form, FORWARD and FULL likewise: 1 where the validator of Avro accepts, else 0. "differ"
   * where its validators, which are older, and SchemaCompatibility disagree on two of the schemas.
   */
  private static String accepted(JsonNode asked) {
    Schema candidate = parsed(asked.get("new"));
    List<Schema> earlier = new ArrayList<>();
    asked.get("earlier").forEach(each -> earlier.add(parsed(each)));
    for (Schema each : earlier) {
      if (differ(candidate, each) || differ(each, candidate)) {
        return "differ";
      }
    }
    StringBuilder verdicts = new StringBuilder();
    for (SchemaValidator validator :
        List.of(
            new SchemaValidatorBuilder().canReadStrategy().validateLatest(),
            new SchemaValidatorBuilder().canReadStrategy().validateAll(),
            new SchemaValidatorBuilder().canBeReadStrategy().validateLatest(),
            new SchemaValidatorBuilder().canBeReadStrategy().validateAll(),
            new SchemaValidatorBuilder().mutualReadStrategy().validateLatest(),
            new SchemaValidatorBuilder().mutualReadStrategy().validateAll())) {
      verdicts.append(accepts(validator, candidate, earlier) ? '1' : '0');
    }
    return verdicts.toString();
  }

  private static boolean differ(Schema reader, Schema writer) {
    SchemaValidator validator = new SchemaValidatorBuilder().canReadStrategy().validateAll();
    return accepts(validator, reader, List.of(writer))
        != (SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType()
            == SchemaCompatibility.SchemaCompatibilityType.COMPATIBLE);
  }

  private static boolean accepts(SchemaValidator validator, Schema candidate, List<Schema> earlier) {
    try {
      validator.validate(candidate, earlier);
      return true;
    } catch (SchemaValidationException incompatible) {
      return false;
    }
  }

  private static Schema parsed(JsonNode schema) {
    return new Schema.Parser().parse(schema.toString());
  }
}
