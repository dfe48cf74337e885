//! Calls a gateway with the client that openapi-generator makes in Rust: `calls URL`. Prints what came back.

use openapi::apis::configuration::Configuration;
use openapi::apis::{cas_api, diff_api, resolve_api, roots_api, Error};
use openapi::models::resolve_request::Profile;
use openapi::models::{ArcMap, ResolveRequest};
use serde_json::{json, to_value, Value};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base_path = std::env::args().nth(1).expect("calls URL");
    let gateway = Configuration { base_path, ..Configuration::default() };

    let file = std::env::temp_dir().join(format!("payload-{}", std::process::id()));
    std::fs::write(&file, "hello")?;
    let created = cas_api::put_payload(&gateway, file.clone(), Some("raw"), None).await;
    std::fs::remove_file(file)?;
    let cid = created?.cid;
    let arcs = [("docs/readme".to_owned(), cid.clone())].into();
    let root = roots_api::create_root(&gateway, ArcMap::new(arcs), None).await?.root;
    let ask = |path: &[&str]| {
        let segments = path.iter().map(ToString::to_string).collect();
        ResolveRequest::new(Profile::CoreResolveSlashV0alpha1, root.clone(), segments)
    };
    let resolved = resolve_api::resolve(&gateway, ask(&["docs", "readme"])).await?;
    let steps = to_value(&resolved.prooflist.steps)?;
    let kinds: Vec<&Value> = steps.as_array().into_iter().flatten().map(|step| &step["kind"]).collect();
    let compared = diff_api::diff(&gateway, &root, &root, None, None, None).await?;
    let payload = cas_api::get_payload(&gateway, &cid, None, None, None).await?.text().await?;
    let Err(Error::ResponseError(refused)) = resolve_api::resolve(&gateway, ask(&["missing"])).await else {
        panic!("a missing path was found")
    };
    let absent: Value = serde_json::from_str(&refused.content)?;

    let printed = json!({
        "target": resolved.target, "kinds": kinds, "differences": compared.entries.len(), "payload": payload,
        "absent": absent["error"],
    });
    println!("{printed}");
    Ok(())
}
