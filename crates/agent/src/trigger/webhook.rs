//! Bodies of webhooks: Alertmanager's, Grafana's, and the legacy form of Grafana's alerts.

use std::collections::BTreeMap;

use serde::Deserialize;

/// An alert that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// Its summary, or its labels.
    pub text: String,
}

/// Why a body is no webhook's.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// It is no JSON of a known form.
    #[error("it is no body of Alertmanager or Grafana: {0}")]
    Form(#[from] serde_json::Error),
    /// It names no alert.
    #[error("it names no alert: `alerts` or `ruleName` is missing")]
    NoAlert,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    alerts: Option<Vec<Entry>>,
    rule_name: Option<String>,
    state: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The alerts of a body that fire; resolved ones are left out.
///
/// # Errors
/// [`WebhookError`].
pub fn parse_webhook(body: &[u8]) -> Result<Vec<Alert>, WebhookError> {
    let body: Body = serde_json::from_slice(body)?;
    match (body.alerts, body.rule_name) {
        (Some(entries), _) => Ok(entries.iter().filter_map(alert).collect()),
        (None, Some(name)) => {
            let fires = body.state.as_deref() == Some("alerting");
            let text = body.message.unwrap_or_default();
            Ok(fires.then_some(Alert { name, text }).into_iter().collect())
        }
        (None, None) => Err(WebhookError::NoAlert),
    }
}

fn alert(entry: &Entry) -> Option<Alert> {
    let name = entry.labels.get("alertname")?;
    if entry.status != "firing" {
        return None;
    }
    let summary = entry
        .annotations
        .get("summary")
        .or(entry.annotations.get("description"));
    let labels = || {
        let others = entry.labels.iter().filter(|(key, _)| *key != "alertname");
        let pairs: Vec<String> = others.map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(", ")
    };
    Some(Alert {
        name: name.clone(),
        text: summary.cloned().unwrap_or_else(labels),
    })
}
