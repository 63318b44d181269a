//! TLS: which servers are trusted, and what to do if one is not.
//!
//! As in curl, authorities that the user names replace those of the system: `--ca-bundle` alone, else all that the
//! environment variables of other programs name.
//!
//! **Invariant:** a certificate is accepted only after its signature, dates, purpose and name were checked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};
use x509_parser::prelude::{ASN1Time, FromDer, ParsedExtension, X509Certificate};

/// Environment variables of other programs that name a file or directory of certificates.
pub(super) const VARIABLES: [&str; 4] = [
    "SSL_CERT_FILE",
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
];
/// The variable that names directories, separated by colons.
pub(super) const DIRECTORIES: &str = "SSL_CERT_DIR";

/// Which servers are trusted over TLS. Clones share the certificates, which are read once.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    ca_bundle: Option<PathBuf>,
    loaded: Arc<OnceLock<Result<Trust, String>>>,
}

/// The certificates that are trusted, and the configuration of a client that trusts them.
#[derive(Debug)]
struct Trust {
    config: ClientConfig,
    certificates: Vec<CertificateDer<'static>>,
}

impl TlsOptions {
    /// `ca_bundle` is a file or directory with the only certificates to trust.
    pub fn new(ca_bundle: Option<PathBuf>) -> Self {
        Self {
            ca_bundle,
            loaded: Arc::default(),
        }
    }

    /// Returns the configuration of a client.
    ///
    /// # Errors
    /// The reason why no certificate of `--ca-bundle` can be used.
    pub(in crate::store::remote) fn config(&self) -> Result<ClientConfig, String> {
        Ok(self.trust()?.config.clone())
    }

    /// Returns the trusted certificates in PEM.
    ///
    /// # Errors
    /// As [`Self::config`].
    pub(in crate::store::remote) fn pem(&self) -> Result<Vec<u8>, String> {
        let of = |certificate: &CertificateDer<'_>| {
            let text = STANDARD.encode(certificate);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let is_usable = |certificate: &&CertificateDer<'_>| webpki_anchor(certificate).is_ok();
        let usable = self.trust()?.certificates.iter().filter(is_usable);
        let pem: String = usable.map(of).collect();
        Ok(pem.into_bytes())
    }

    fn trust(&self) -> Result<&Trust, String> {
        let loaded = self.loaded.get_or_init(|| {
            super::install_tls();
            let certificates = match &self.ca_bundle {
                Some(path) => of_option(path)?,
                None => of_environment(|name| std::env::var_os(name).map(PathBuf::from)),
            };
            Trust::new(certificates)
        });
        loaded.as_ref().map_err(Clone::clone)
    }
}

/// Checks that a certificate can be the root of a chain.
fn webpki_anchor(certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
    RootCertStore::empty().add(certificate.clone().into_owned())
}

/// Reads the certificates of a file or directory.
fn read(path: &Path) -> CertificateResult {
    match path.is_dir() {
        true => load_certs_from_paths(None, Some(path)),
        false => load_certs_from_paths(Some(path), None),
    }
}

/// Reads the certificates of `--ca-bundle`.
fn of_option(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = read(path);
    match (found.certs.is_empty(), found.errors.first()) {
        (false, None) => Ok(found.certs),
        (_, Some(error)) => Err(format!("--ca-bundle: {error}")),
        (true, None) => Err(format!(
            "--ca-bundle {}: no certificate in PEM (-----BEGIN CERTIFICATE-----) is in it",
            path.display()
        )),
    }
}

/// Reads the certificates that the environment names, else those of the system.
fn of_environment(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<CertificateDer<'static>> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    let mut paths: Vec<(&str, PathBuf)> = Vec::new();
    for name in VARIABLES {
        paths.extend(set(name).map(|path| (name, path)));
    }
    if let Some(directories) = set(DIRECTORIES) {
        let all = std::env::split_paths(&directories).map(|path| (DIRECTORIES, path));
        paths.extend(all.filter(|(_, path)| !path.as_os_str().is_empty()));
    }
    if paths.is_empty() {
        let found = load_native_certs();
        for error in found.errors {
            log::warn!("certificates of the system: {error}");
        }
        return found.certs;
    }
    let mut certificates = Vec::new();
    for (name, path) in paths {
        let found = read(&path);
        if let Some(error) = found.errors.first() {
            log::warn!("{name}={}: {error}", path.display());
        }
        certificates.extend(found.certs);
    }
    certificates.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    certificates.dedup();
    certificates
}

impl Trust {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let (_, ignored) = roots.add_parsable_certificates(certificates.iter().cloned());
        if ignored > 0 {
            log::debug!("{ignored} certificates are not understood");
        }
        let webpki = match roots.is_empty() {
            // As in a small container. http needs no certificates.
            true => None,
            false => {
                let built = WebPkiServerVerifier::builder(Arc::new(roots)).build();
                Some(built.map_err(|error| error.to_string())?)
            }
        };
        let verifier = Arc::new(Verifier {
            webpki,
            trusted: certificates.clone(),
            schemes: rustls::crypto::ring::default_provider().signature_verification_algorithms,
        });
        let mut config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            config,
            certificates,
        })
    }
}

/// Verifies as `webpki` does, and also accepts what OpenSSL accepts: servers whose own certificate may sign others
/// (`CA:TRUE`, as plain `openssl req -x509` makes), if it is trusted itself or a trusted authority has signed it.
#[derive(Debug)]
struct Verifier {
    /// `None` if no authority is trusted.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    schemes: rustls::crypto::WebPkiSupportedAlgorithms,
}

const UNKNOWN: rustls::Error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(webpki) = &self.webpki else {
            return Err(UNKNOWN);
        };
        match webpki.verify_server_cert(own, others, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))) if is_ca(own) => {}
            // A trusted authority has the name of the signer and another key, as one that was made again.
            Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)) => {
                return Err(UNKNOWN);
            }
            verified => return verified,
        }
        check_ca(own, &self.trusted, now)?;
        verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, own, signature, &self.schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, own, signature, &self.schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.supported_schemes()
    }
}

fn is_ca(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.is_ca())
}

/// Checks the certificate of a server that is one of an authority itself, without its name.
fn check_ca(
    own: &CertificateDer<'_>,
    trusted: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), CertificateError> {
    let parsed = parse(own)?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let now = ASN1Time::from_timestamp(seconds).map_err(|_| CertificateError::BadEncoding)?;
    check_use(&parsed, now)?;
    if trusted.iter().any(|one| one.as_ref() == own.as_ref()) {
        return Ok(());
    }
    let has_signed = |issuer: &CertificateDer<'_>| {
        parse(issuer).is_ok_and(|issuer| {
            issuer.subject().as_raw() == parsed.issuer().as_raw()
                && may_sign(&issuer, now)
                && parsed.verify_signature(Some(issuer.public_key())).is_ok()
        })
    };
    match trusted.iter().any(has_signed) {
        true => Ok(()),
        false => Err(CertificateError::UnknownIssuer),
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CertificateError> {
    match X509Certificate::from_der(der) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err(CertificateError::BadEncoding),
    }
}

/// Checks dates, purpose and critical extensions of the certificate of a server.
fn check_use(parsed: &X509Certificate<'_>, now: ASN1Time) -> Result<(), CertificateError> {
    if now > parsed.validity().not_after {
        return Err(CertificateError::Expired);
    }
    if now < parsed.validity().not_before {
        return Err(CertificateError::NotValidYet);
    }
    for extension in parsed.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(usage) if !usage.any && !usage.server_auth => {
                return Err(CertificateError::InvalidPurpose);
            }
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_) => {}
            _ if extension.critical => return Err(CertificateError::UnhandledCriticalExtension),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a trusted certificate may sign that of a server. One with limits that are not checked here may not.
fn may_sign(issuer: &X509Certificate<'_>, now: ASN1Time) -> bool {
    let signs = match issuer.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    let is_unlimited = matches!(issuer.name_constraints(), Ok(None));
    signs && is_unlimited && issuer.is_ca() && check_use(issuer, now).is_ok()
}

/// Describes an error of TLS, for users: the cause and what to do.
pub(super) fn explain(error: &rustls::Error, host: &str) -> String {
    use rustls::Error as Tls;
    let untrusted = || {
        format!(
            "the certificate of {host} is signed by no authority that is trusted (give the file of the authority, or \
             of the certificate if it is self-signed, with --ca-bundle FILE or in SSL_CERT_FILE; trusted are {})",
            trusted_names()
        )
    };
    match error {
        Tls::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => untrusted(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!(
                "the certificate of {host} has expired (renew it on the server, and check the clock of this machine)"
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => format!(
                "the certificate of {host} is not valid yet (check the clocks of this machine and of the server)"
            ),
            CertificateError::NotValidForName => wrong_name(host, &[]),
            CertificateError::NotValidForNameContext { presented, .. } => {
                wrong_name(host, presented)
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                format!(
                    "the certificate of {host} is not for servers (its extended key usage needs serverAuth)"
                )
            }
            other => format!("the certificate of {host} cannot be used: {other}"),
        },
        Tls::InvalidMessage(_) => format!(
            "{host} does not answer with TLS (check the port, and whether the server has https or only http)"
        ),
        Tls::AlertReceived(alert) => format!(
            "{host} refuses the TLS connection: {alert:?} (the server may want a client certificate, which zarrfs does \
             not have, or another version of TLS than 1.2 and 1.3)"
        ),
        Tls::PeerIncompatible(_) => format!(
            "{host} has no version or cipher of TLS in common with zarrfs, which has TLS 1.2 and 1.3: {error}"
        ),
        other => format!("TLS with {host}: {other}"),
    }
}

fn wrong_name(host: &str, presented: &[String]) -> String {
    match presented {
        [] => format!(
            "the certificate of {host} is not for this name (it needs the name or address in subjectAltName)"
        ),
        names => {
            // As `DnsName("host")` and `IpAddress(::1)`.
            let bare = |name: &String| {
                let name = name.split_once('(').map_or(&name[..], |(_, name)| name);
                name.trim_end_matches(')').trim_matches('"').to_owned()
            };
            let names: Vec<String> = names.iter().map(bare).collect();
            format!(
                "the certificate of {host} is for {} (use a name of the certificate in the URL, or add {host} to its \
                 subjectAltName)",
                names.join(", ")
            )
        }
    }
}

/// Names what is trusted without `--ca-bundle`.
fn trusted_names() -> String {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let names = VARIABLES.into_iter().chain([DIRECTORIES]);
    let set: Vec<&str> = names.filter(is_set).collect();
    match set.is_empty() {
        true => "those of --ca-bundle, else of the system".into(),
        false => format!("those of --ca-bundle, else of {}", set.join(", ")),
    }
}
