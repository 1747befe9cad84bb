//! TLS with an authority of one's own, and a proxy.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use wallscope_agent::http::{Body, Client, ClientError, ClientOptions};

/// A server for `localhost` with a certificate of an authority of its own; returns its address and the
/// authority's certificate.
fn server() -> (String, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(tls, stream);
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (url, authority.pem())
}

fn put(options: ClientOptions, url: &str) -> Result<(), ClientError> {
    let body = Body {
        content_type: "application/gzip",
        bytes: b"x",
    };
    Client::new(options)?.put(url, body)
}

#[test]
fn an_authority_of_ones_own_is_the_only_one() {
    let (url, pem) = server();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        ClientOptions {
            ca_file: Some(path),
            timeout: Duration::from_secs(10),
            ..ClientOptions::default()
        }
    };
    put(file("ca.pem", &pem), &url).unwrap();
    // Another authority, and the system's, do not do.
    let (_, other) = server();
    for options in [file("other.pem", &other), ClientOptions::default()] {
        let told = put(options, &url).unwrap_err();
        assert!(matches!(told, ClientError::Transport(_)), "{told}");
    }
    for (text, cause) in [("", "no certificate"), ("-----BEGIN X-----\nx", "")] {
        let told = put(file("wrong.pem", text), &url).unwrap_err().to_string();
        assert!(told.contains("wrong.pem") && told.contains(cause), "{told}");
    }
    let gone = ClientOptions {
        ca_file: Some(dir.path().join("gone.pem")),
        ..ClientOptions::default()
    };
    assert!(matches!(put(gone, &url), Err(ClientError::File { .. })));
}

#[test]
fn a_proxy_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.ends_with(b"\r\n\r\n") {
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "the request ends early");
            request.extend_from_slice(&buffer[..n]);
        }
        let _ = stream.write_all(
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        String::from_utf8_lossy(&request).into_owned()
    });
    let options = ClientOptions {
        proxy: Some(proxy),
        timeout: Duration::from_secs(10),
        headers: BTreeMap::new(),
        ..ClientOptions::default()
    };
    let told = put(options, "http://receiver.invalid:8080/v1/windows/a/b/1/2").unwrap_err();
    assert!(!told.is_refusal(), "{told}");
    let request = asked.join().unwrap();
    assert!(request.contains("receiver.invalid:8080"), "{request}");
    let wrong = ClientOptions {
        proxy: Some("http://".to_string()),
        ..ClientOptions::default()
    };
    assert!(matches!(
        put(wrong, "http://a/"),
        Err(ClientError::Proxy { .. })
    ));
}
