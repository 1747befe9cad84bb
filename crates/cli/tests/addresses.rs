//! Addresses of profiles are read like files, encrypted or not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use wallscope_formats::pprof;
use wallscope_model::scale::scale;
use wallscope_synthetic as synthetic;

fn profile() -> Vec<u8> {
    let rec = synthetic::recording(2);
    pprof::write(&rec, &scale(&rec), Vec::new()).unwrap()
}

/// Answers one request with `body`.
fn answer(stream: &mut (impl Read + Write), body: &[u8]) -> std::io::Result<()> {
    let mut request = BufReader::new(&mut *stream);
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    stream.flush()
}

/// A server for one connection, on loopback.
fn serve(
    with: impl FnOnce(TcpStream) -> std::io::Result<()> + Send + 'static,
) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || with(listener.accept()?.0));
    (address, served)
}

fn report(address: &str, trusted: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wallscope"));
    command
        .args(["report", "--json", address])
        .env_remove("SSL_CERT_DIR")
        .stdin(Stdio::null());
    // One that names none: a test must not depend on the machine's certificates.
    command.env("SSL_CERT_FILE", trusted.unwrap_or(Path::new("/dev/null")));
    for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy).env_remove(proxy.to_uppercase());
    }
    command.output().unwrap()
}

fn is_the_profile(out: &Output) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["schema"], "wallscope.report/1");
    assert!(!v["functions"].as_array().unwrap().is_empty());
}

#[test]
fn a_profile_is_fetched() {
    let (address, served) = serve(|mut stream| answer(&mut stream, &profile()));
    is_the_profile(&report(&format!("http://{address}/debug/pprof/x"), None));
    served.join().unwrap().unwrap();
}

#[test]
fn a_profile_is_fetched_encrypted_from_whom_the_machine_trusts() {
    let dir = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    let trusted = dir.path().join("own.pem");
    std::fs::write(&trusted, own.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let encrypted = |config: Arc<rustls::ServerConfig>| {
        move |tcp: TcpStream| {
            let connection =
                rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
            let mut stream = rustls::StreamOwned::new(connection, tcp);
            answer(&mut stream, &profile())?;
            stream.conn.send_close_notify();
            stream.flush()
        }
    };

    let (address, served) = serve(encrypted(config.clone()));
    is_the_profile(&report(&format!("https://{address}/x"), Some(&trusted)));
    served.join().unwrap().unwrap();

    let (address, served) = serve(encrypted(config));
    let refused = report(&format!("https://{address}/x"), None);
    assert_eq!(refused.status.code(), Some(5));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("certificate"), "{said}");
    assert!(served.join().unwrap().is_err(), "it hung up");
}

#[test]
fn nobody_there_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let out = report(&format!("http://{address}/x"), None);
    assert_eq!(out.status.code(), Some(5));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("curl -v"), "{said}");
}
