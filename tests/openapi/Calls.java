// Calls a gateway with the client that openapi-generator makes in Java: `Calls URL`. Prints what came back.

import com.fasterxml.jackson.databind.ObjectMapper;
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
        ObjectMapper json = new ObjectMapper();

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
            printed.put("absent", json.readTree(refused.getResponseBody()).get("error").asText());
        }
        printed.put("target", resolved.getTarget());
        printed.put("kinds", kinds);
        printed.put("differences", differences);
        printed.put("payload", payload);
        System.out.println(json.writeValueAsString(printed));
    }

    private static ResolveRequest ask(String root, String... path) {
        return new ResolveRequest().profile(ResolveRequest.ProfileEnum.CORE_RESOLVE_V0ALPHA1).root(root).segments(List.of(path));
    }
}
