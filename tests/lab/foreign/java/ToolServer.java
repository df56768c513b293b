import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the `main` of one Kafka tool after the other in this JVM, since to start one for each costs seconds.
 *
 * A request is a line of JSON on standard input: {"main": class name, "arguments": [...], "given": standard input}.
 * Its answer is a line on standard output: {"code": exit code, "out": standard output, "errors": standard error}.
 * Tools end by `Exit.exit`, which Kafka lets its tests replace: here it ends the tool and not the JVM.
 */
public final class ToolServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();
    private static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();
    private static final AtomicReference<Integer> CODE = new AtomicReference<>();

    private static final class Ended extends Error {
        Ended() {
            super("the tool ended", null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            int code = run(JSON.readTree(line));
            String out = OUT.toString(StandardCharsets.UTF_8);
            String errors = ERRORS.toString(StandardCharsets.UTF_8);
            answers.println(JSON.writeValueAsString(Map.of("code", code, "out", out, "errors", errors)));
            answers.flush();
        }
    }

    private static void end(int code) {
        CODE.compareAndSet(null, code);
        throw new Ended();
    }

    private static int run(JsonNode request) {
        OUT.reset();
        ERRORS.reset();
        HOOKS.clear();
        CODE.set(null);
        System.setIn(new ByteArrayInputStream(request.get("given").asText().getBytes(StandardCharsets.UTF_8)));
        String[] arguments = StreamSupport.stream(request.get("arguments").spliterator(), false)
            .map(JsonNode::asText).toArray(String[]::new);
        try {
            Class<?> main = Class.forName(request.get("main").asText());
            main.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            note(thrown.getCause());
        } catch (Throwable thrown) {
            note(thrown);
        }
        HOOKS.forEach(Runnable::run);
        CODE.compareAndSet(null, 0);
        return CODE.get();
    }

    private static void note(Throwable thrown) {
        if (!(thrown instanceof Ended)) {
            thrown.printStackTrace();
            CODE.compareAndSet(null, 1);
        }
    }
}
