//! Names of pods, from the kubelet's `/pods`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::http::{self, Client, ClientOptions};

/// Most bytes of the kubelet's answer: a node has at most some hundred pods.
const MAX_ANSWER: u64 = 64 << 20;

/// Time for its answer: the end of the agent waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The workload that made it: `checkout` for `checkout-7d4b9c6f5-x2x9k`.
    pub workload: String,
}

/// The pods of this node, by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods(HashMap<String, Pod>);

/// Why pods are not known.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    /// The kubelet does not answer.
    #[error(transparent)]
    Http(#[from] http::ClientError),
    /// Its answer is no list of pods.
    #[error("the kubelet's answer is no list of pods: {0}")]
    Answer(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    annotations: HashMap<String, String>,
    labels: HashMap<String, String>,
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    name: String,
}

impl Pods {
    /// The pod with this uid.
    pub fn get(&self, uid: &str) -> Option<&Pod> {
        self.0.get(uid)
    }

    /// Asks the kubelet at `url`, such as `https://127.0.0.1:10250`.
    ///
    /// # Errors
    /// [`PodsError`].
    pub fn ask(
        url: &str,
        token_file: Option<PathBuf>,
        ca_file: Option<PathBuf>,
    ) -> Result<Pods, PodsError> {
        let client = Client::new(ClientOptions {
            token_file,
            ca_file,
            timeout: TIMEOUT,
            ..ClientOptions::default()
        })?;
        let body = client.get(&format!("{url}/pods"), MAX_ANSWER)?;
        Ok(Pods::parse(&body)?)
    }

    /// Reads the kubelet's answer.
    ///
    /// # Errors
    /// The error of the JSON parser.
    pub fn parse(body: &[u8]) -> Result<Pods, serde_json::Error> {
        let list: List = serde_json::from_slice(body)?;
        let mut pods = HashMap::new();
        for Item { metadata } in list.items {
            let pod = Pod {
                workload: workload(&metadata),
                namespace: metadata.namespace,
                name: metadata.name,
            };
            // The cgroup of a static pod has the hash of its file in place of the uid.
            let hash = metadata.annotations.get("kubernetes.io/config.hash");
            for uid in [Some(&metadata.uid), hash].into_iter().flatten() {
                pods.insert(uid.clone(), pod.clone());
            }
        }
        Ok(Pods(pods))
    }
}

/// The workload of a pod: its owner, without the hash that a deployment adds, or the pod itself.
fn workload(m: &Metadata) -> String {
    let Some(owner) = m.owner_references.first() else {
        return m.name.clone();
    };
    let hash = m.labels.get("pod-template-hash");
    match (owner.kind.as_str(), hash) {
        ("ReplicaSet", Some(hash)) => {
            let deployment = owner.name.strip_suffix(hash.as_str());
            let deployment = deployment.and_then(|n| n.strip_suffix('-'));
            deployment.unwrap_or(&owner.name).to_string()
        }
        // The node is the owner of a static pod.
        ("Node", _) => m.name.clone(),
        _ => owner.name.clone(),
    }
}
