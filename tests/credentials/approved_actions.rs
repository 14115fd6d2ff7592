//! Actions that wait for a person: the arguments that are shown have no secret of a binding.

use cofferdam::{HostErrorKind, RunRequest};
use cofferdam_egress::vault::SecretMaterial;
use cofferdam_runtime::approvals::ApprovalPolicy;
use cofferdam_test_support::vault::{binding, secret};
use serde_json::json;

use super::{PROBE, Wants, credential, make};
use crate::actions_run::fixture::write;
use crate::shared_host::{refused, run};

const SECRET: &str = "plain-words-of-the-team";

#[test]
fn secrets_of_an_actions_bindings_are_not_shown() {
    let rules = "[[approvals.rules]]\noperations = [\"post\"]\nask = true\n";
    let service = make(&Wants {
        credentials: &credential("bearer", "slack", "\"HOST\"", ""),
        bindings: &|hosts| {
            let material = SecretMaterial::Bearer { token: secret(SECRET) };
            vec![binding("bearer/slack", material, &[PROBE], hosts)]
        },
        more: &|builder| builder.approval_policy(ApprovalPolicy::parse("config.toml", rules).unwrap()),
    });
    let hash = service.host.list().unwrap()[0].digest;
    let (grant, url) = (service.upstream.grant(), service.upstream.url("/text/shown"));
    let text = format!(
        "+++\nname = \"tell\"\nversion = \"1.0.0\"\n[[requires.connectors]]\n\
         name = \"github://cofferdam/probe\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n\
         capabilities = {{ operations = [\"post\"], hosts = [\"{grant}\"] }}\n\
         [[inputs]]\nname = \"text\"\ntype = \"string\"\ndescription = \"A text.\"\n\
         [[execute]]\nid = \"tell\"\nconnector = \"github://cofferdam/probe\"\nop = \"post\"\n\
         inputs = {{ url = \"{url}\", body = \"${{args.text}}\" }}\n+++\nA test.\n"
    );
    write(service.home.path(), "tell", &text);
    let request = RunRequest::new(json!({"text": format!("It is {SECRET}.")}));
    let error = refused(run(service.host.run_action("tell", request)).outcome);
    assert_eq!(error.kind(), HostErrorKind::ApprovalRequired, "{error}");
    let approval = service.host.approval(error.details()["approval"].as_str().unwrap()).unwrap();
    let shown = approval.arguments.text.unwrap();
    assert!(!shown.contains(SECRET) && shown.contains("It is <ref:bearer/slack"), "{shown}");
    assert!(service.upstream.seen("/text/shown").is_empty(), "nothing ran");
}
