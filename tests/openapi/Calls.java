// Calls a gateway with the client that openapi-generator makes in Java: `Calls URL`. Prints what came back.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.CasApi;
import org.openapitools.client.api.DiffApi;
import org.openapitools.client.api.ResolveApi;
import org.openapitools.client.api.RootsApi;
import org.openapitools.client.model.ArcMap;
import org.openapitools.client.model.ResolveRequest;
import org.openapitools.client.model.ResolveResult;

public class Calls {
    public static void main(String[] arguments) throws Exception {
        ApiClient gateway = new ApiClient().setBasePath(arguments[0]);
        Gson json = new Gson();

        Path file = Files.writeString(Files.createTempFile("payload", ""), "hello");
        String cid = new CasApi(gateway).putPayload(file.toFile(), "raw", null).getCid();
        Files.delete(file);
        ArcMap arcs = new ArcMap().arcs(Map.of("docs/readme", cid));
        String root = new RootsApi(gateway).createRoot(arcs, null).getRoot();
        ResolveResult resolved = new ResolveApi(gateway).resolve(ask(root, "docs", "readme"));
        List<String> kinds = resolved.getProoflist().getSteps().stream()
            .map(step -> step.getMapStep().getKind().getValue()).toList();
        int differences = new DiffApi(gateway).diff(root, root, null, null, null).getEntries().size();
        Path fetched = new CasApi(gateway).getPayload(cid, null, null, null).toPath();
        String payload = Files.readString(fetched);
        Files.delete(fetched);

        Map<String, Object> printed = new LinkedHashMap<>();
        try {
            new ResolveApi(gateway).resolve(ask(root, "missing"));
        } catch (ApiException refused) {
            JsonObject error = json.fromJson(refused.getResponseBody(), JsonObject.class);
            printed.put("absent", error.get("error").getAsString());
        }
        printed.put("target", resolved.getTarget());
        printed.put("kinds", kinds);
        printed.put("differences", differences);
        printed.put("payload", payload);
        System.out.println(json.toJson(printed));
        System.exit(0); // the threads of OkHttp's connections would run for a minute
    }

    private static ResolveRequest ask(String root, String... path) {
        ResolveRequest.ProfileEnum profile = ResolveRequest.ProfileEnum.CORE_RESOLVE_V0ALPHA1;
        return new ResolveRequest().profile(profile).root(root).segments(List.of(path));
    }
}
