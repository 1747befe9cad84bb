//! Requests with a token from a file, an authority of one's own, further headers and a proxy.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Most bytes of an error's text that is kept.
const MAX_TEXT: u64 = 300;

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// File with the bearer token, read for each request: tokens rotate.
    pub token_file: Option<PathBuf>,
    /// File with certificates of authorities, PEM; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// HTTP proxy; the environment's is not used.
    pub proxy: Option<String>,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// Time after which a request fails.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            token_file: None,
            ca_file: None,
            proxy: None,
            headers: BTreeMap::new(),
            timeout: Duration::from_secs(30),
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file of the options cannot be used.
    #[error("cannot use '{}': {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// The proxy's address cannot be used.
    #[error("cannot use proxy {proxy:?}: {cause}")]
    Proxy {
        /// The address.
        proxy: String,
        /// The reason.
        cause: String,
    },
    /// There was no answer.
    #[error("no answer: {0}")]
    Transport(String),
    /// The answer was no success.
    #[error("answer {status}: {text}")]
    Status {
        /// Its status.
        status: u16,
        /// Time after which the server wants to be asked again.
        retry_after: Option<Duration>,
        /// Start of its text.
        text: String,
    },
}

impl ClientError {
    /// Whether the same request can never succeed: the receiver refuses its content.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            ClientError::Status {
                status: 400 | 409 | 413 | 415 | 422,
                ..
            }
        )
    }
}

/// The content of a request.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// Its media type.
    pub content_type: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    agent: ureq::Agent,
    options: ClientOptions,
}

impl Client {
    /// A client with these options.
    ///
    /// # Errors
    /// [`ClientError::File`] or [`ClientError::Proxy`].
    pub fn new(options: ClientOptions) -> Result<Client, ClientError> {
        let proxy = options.proxy.as_deref().map(|p| {
            ureq::Proxy::new(p).map_err(|e| ClientError::Proxy {
                proxy: p.to_string(),
                cause: e.to_string(),
            })
        });
        let tls = TlsConfig::builder().root_certs(roots(&options)?).build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .proxy(proxy.transpose()?)
            .timeout_global(Some(options.timeout))
            .http_status_as_error(false)
            // A token must not follow to another address.
            .max_redirects(0)
            .user_agent(concat!("wallscope/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = config.new_agent();
        Ok(Client { agent, options })
    }

    /// Sends `PUT`.
    ///
    /// # Errors
    /// [`ClientError`]; an answer other than 2xx is one.
    pub fn put(&self, url: &str, body: Body) -> Result<(), ClientError> {
        self.send(self.agent.put(url), body)
    }

    /// Sends `POST`.
    ///
    /// # Errors
    /// [`ClientError`]; an answer other than 2xx is one.
    pub fn post(&self, url: &str, body: Body) -> Result<(), ClientError> {
        self.send(self.agent.post(url), body)
    }

    fn send(
        &self,
        mut request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        body: Body,
    ) -> Result<(), ClientError> {
        for (name, value) in self.headers()? {
            request = request.header(name, value);
        }
        let answer = request.content_type(body.content_type).send(body.bytes);
        success(answer).map(|_| ())
    }

    /// Sends `GET`; returns at most `max` bytes of the answer's body.
    ///
    /// # Errors
    /// [`ClientError`]; an answer other than 2xx is one.
    pub fn get(&self, url: &str, max: u64) -> Result<Vec<u8>, ClientError> {
        let mut request = self.agent.get(url);
        for (name, value) in self.headers()? {
            request = request.header(name, value);
        }
        let answer = success(request.call())?;
        let mut body = answer.into_body().into_with_config().limit(max).reader();
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)
            .map_err(|e| ClientError::Transport(e.to_string()))?;
        Ok(bytes)
    }

    fn headers(&self) -> Result<Vec<(String, String)>, ClientError> {
        let own = self.options.headers.iter();
        let mut headers: Vec<_> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
        if let Some(path) = &self.options.token_file {
            let token = file(path)?;
            headers.push((
                "Authorization".to_string(),
                format!("Bearer {}", token.trim()),
            ));
        }
        Ok(headers)
    }
}

type Answer = ureq::http::Response<ureq::Body>;

fn success(answer: Result<Answer, ureq::Error>) -> Result<Answer, ClientError> {
    let answer = answer.map_err(|e| ClientError::Transport(e.to_string()))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let retry_after = answer.headers().get("retry-after");
    let seconds = retry_after.and_then(|v| v.to_str().ok()?.trim().parse().ok());
    let status = answer.status().as_u16();
    let mut text = Vec::new();
    let mut body = answer.into_body().into_reader().take(MAX_TEXT);
    // The status is the error; its text is a help at best.
    let _ = body.read_to_end(&mut text);
    Err(ClientError::Status {
        status,
        retry_after: seconds.map(Duration::from_secs),
        text: String::from_utf8_lossy(&text).trim().to_string(),
    })
}

fn roots(options: &ClientOptions) -> Result<RootCerts, ClientError> {
    let Some(path) = &options.ca_file else {
        return Ok(RootCerts::PlatformVerifier);
    };
    let pem = file(path)?;
    let unusable = |cause: String| ClientError::File {
        path: path.clone(),
        cause,
    };
    let mut certificates = Vec::new();
    for item in parse_pem(pem.as_bytes()) {
        match item.map_err(|e| unusable(e.to_string()))? {
            PemItem::Certificate(c) => certificates.push(c),
            _ => {
                return Err(unusable(
                    "it holds something else than certificates".to_string(),
                ));
            }
        }
    }
    match certificates.is_empty() {
        true => Err(unusable("it holds no certificate".to_string())),
        false => Ok(RootCerts::Specific(Arc::new(certificates))),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the configuration names the file"
)]
fn file(path: &PathBuf) -> Result<String, ClientError> {
    std::fs::read_to_string(path).map_err(|e| ClientError::File {
        path: path.clone(),
        cause: e.to_string(),
    })
}
