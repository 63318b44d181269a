//! Creates the client of an object store from a URL and options.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use object_store::aws::{AmazonS3Builder, AwsCredentialProvider};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, RetryConfig};
use reqwest::Url;

use super::aws::{Chain, Profile};
use super::service::Connector;
use super::{Client, Objects, RegionalClient, Renewable, issued};
use crate::store::KeyClasses;
use crate::store::remote::protocol::credential_command::CredentialCommand;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::web;
use crate::store::remote::protocol::web::TlsOptions;
use crate::store::remote::protocol::{
    Location, NameListing, Protocol, Syntax, Traits, one_component,
};
use crate::store::remote::request::Remote;

/// The provider of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    /// Amazon S3 and compatible services.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl Provider {
    /// The provider's word for a bucket.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::S3 | Self::Google => "bucket",
            Self::Azure => "container",
        }
    }

    /// Whether the end of an object can be requested without knowing its size.
    pub(super) fn has_suffix_ranges(self) -> bool {
        self != Self::Azure
    }
}

const TRAITS: Traits = Traits {
    syntax: Syntax::Name {
        components: one_component,
    },
    has_aliases: true,
    listing: NameListing::Keys,
    has_credentials: true,
    reads_ranges: true,
};

/// The protocol of Amazon S3 and compatible services.
pub(in crate::store::remote) const S3: Protocol = Protocol {
    schemes: &["s3", "s3a"],
    example: "s3://BUCKET/PREFIX",
    traits: TRAITS,
    parse: |url, _| Bucket::parse(Provider::S3, url).map(|bucket| Box::new(bucket) as _),
    denied,
};

/// The protocol of Google Cloud Storage.
pub(in crate::store::remote) const GOOGLE: Protocol = Protocol {
    schemes: &["gs", "gcs"],
    example: "gs://BUCKET/PREFIX",
    traits: TRAITS,
    parse: |url, _| Bucket::parse(Provider::Google, url).map(|bucket| Box::new(bucket) as _),
    denied,
};

/// The protocol of Azure Blob Storage.
pub(in crate::store::remote) const AZURE: Protocol = Protocol {
    schemes: &["az", "abfs", "abfss", "azure"],
    example: "az://CONTAINER/PREFIX",
    traits: TRAITS,
    parse: |url, _| Bucket::parse(Provider::Azure, url).map(|bucket| Box::new(bucket) as _),
    denied,
};

fn denied(status: Option<u16>) -> &'static str {
    match status {
        None => {
            " (credentials come from the environment, --env-file or --profile; --anonymous sends none)"
        }
        Some(_) => {
            " (credentials come from the environment, --env-file or --profile; --anonymous asks without any)"
        }
    }
}

/// A bucket and a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    provider: Provider,
    name: String,
    prefix: String,
    scheme: String,
    /// The account, if the URL names one.
    account: Option<String>,
}

impl Bucket {
    /// Parses `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    /// `abfs://container@account.dfs.core.windows.net/prefix`.
    ///
    /// # Errors
    /// The missing part of the URL.
    fn parse(provider: Provider, url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, account) = match host.split_once('@') {
            Some((name, host)) if provider == Provider::Azure => {
                (name, host.split('.').next().map(str::to_owned))
            }
            _ => (host, None),
        };
        if name.is_empty() || name.contains(['@', ':']) {
            let unit = provider.unit();
            return Err(format!("no name of a {unit} behind {scheme}://"));
        }
        Ok(Self {
            provider,
            name: name.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
            scheme: scheme.to_owned(),
            account,
        })
    }
}

impl Location for Bucket {
    fn label(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("{}://{}{slash}{}", self.scheme, self.name, self.prefix)
    }

    fn identity(&self, options: &RemoteOptions) -> String {
        let endpoint = options.endpoint_url.as_deref().unwrap_or_default();
        format!("{} {endpoint}", self.label())
    }

    fn nothing_there(&self, _documents: &[&str]) -> String {
        "no key begins with it (are bucket and prefix right?)".into()
    }

    fn open(&self, options: &RemoteOptions, _: KeyClasses) -> Result<Arc<dyn Remote>, String> {
        let own = BucketOptions {
            anonymous: options.anonymous,
            endpoint_url: options.endpoint_url.clone(),
            region: options.region.clone(),
            profile: options.profile.clone(),
            command: options
                .credential_command
                .clone()
                .filter(|_| !options.anonymous),
            headers: options.headers()?,
            timeout: options.timeout,
            tls: options.tls.clone(),
        };
        open(self, &own)
    }
}

/// Options for accessing an object store.
#[derive(Debug, Clone, Default)]
struct BucketOptions {
    anonymous: bool,
    endpoint_url: Option<String>,
    region: Option<String>,
    profile: Option<String>,
    command: Option<Arc<CredentialCommand>>,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    tls: TlsOptions,
}

/// Opens a store of the objects below a prefix of a bucket.
///
/// # Errors
/// The option that cannot be used.
fn open(bucket: &Bucket, options: &BucketOptions) -> Result<Arc<dyn Remote>, String> {
    if let Some(endpoint) = &options.endpoint_url {
        let url = Url::parse(endpoint).map_err(|error| format!("--endpoint-url: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("--endpoint-url: neither http nor https".into());
        }
    }
    let client = web::object_client(options.timeout, &options.tls)?;
    let wants_chain =
        bucket.provider == Provider::S3 && !options.anonymous && options.command.is_none();
    let chain =
        wants_chain.then(|| Arc::new(Chain::new(options.profile.as_deref(), client.clone())));
    let credentials = match (&options.command, &chain) {
        (Some(command), _) => Some(Renewable::Command(Arc::clone(command))),
        (None, chain) => chain.clone().map(Renewable::Chain),
    };
    let (s3, first) = match bucket.provider {
        Provider::S3 => {
            let credentials: Option<AwsCredentialProvider> = match &options.command {
                Some(command) => Some(Arc::new(issued::aws(Arc::clone(command)))),
                None => chain.map(|chain| chain as _),
            };
            let (s3, region) = S3Clients::new(bucket, options, client, credentials);
            let is_settled = options.region.is_some();
            let client = s3.client(&region)?;
            let region = Some(region);
            (
                Some(s3),
                RegionalClient {
                    client,
                    region,
                    is_settled,
                },
            )
        }
        Provider::Google => (None, without_region(google(bucket, options, client)?)),
        Provider::Azure => (None, without_region(azure(bucket, options, client)?)),
    };
    Ok(Arc::new(Objects {
        first,
        other: OnceLock::new(),
        s3,
        prefix: bucket.prefix.trim_matches('/').to_owned(),
        provider: bucket.provider,
        credentials,
    }))
}

fn without_region(client: Arc<dyn Client>) -> RegionalClient {
    RegionalClient {
        client,
        region: None,
        is_settled: true,
    }
}

/// Disables retries of the library; this crate retries, with its own deadline.
fn no_retry() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

fn connector(client: reqwest::Client, options: &BucketOptions) -> Connector {
    let headers = options.headers.iter().cloned().collect();
    Connector { client, headers }
}

fn client_options() -> ClientOptions {
    ClientOptions::new().with_allow_http(true)
}

/// The settings that the clients of an S3 bucket share in all regions.
#[derive(Debug)]
pub(super) struct S3Clients {
    bucket: String,
    endpoint: Option<String>,
    is_anonymous: bool,
    is_requester_payer: bool,
    connector: Connector,
    credentials: Option<AwsCredentialProvider>,
}

impl S3Clients {
    /// Reads options, environment and profile; also returns the region that they name.
    fn new(
        bucket: &Bucket,
        options: &BucketOptions,
        client: reqwest::Client,
        credentials: Option<AwsCredentialProvider>,
    ) -> (Self, String) {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let profile = Profile::read(options.profile.as_deref());
        let endpoint = options.endpoint_url.clone();
        let endpoint = endpoint
            .or_else(|| env("AWS_ENDPOINT_URL_S3"))
            .or_else(|| env("AWS_ENDPOINT_URL"))
            .or(profile.endpoint_url);
        let region = options.region.clone();
        let region = region
            .or_else(|| env("AWS_REGION"))
            .or_else(|| env("AWS_DEFAULT_REGION"))
            .or(profile.region)
            .unwrap_or_else(|| "us-east-1".into());
        let s3 = Self {
            bucket: bucket.name.clone(),
            endpoint,
            is_anonymous: options.anonymous,
            is_requester_payer: env("AWS_REQUEST_PAYER").as_deref() == Some("requester"),
            connector: connector(client, options),
            credentials,
        };
        (s3, region)
    }

    /// Creates the client for a region.
    pub(super) fn client(&self, region: &str) -> Result<Arc<dyn Client>, String> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(region)
            .with_retry(no_retry())
            .with_client_options(client_options())
            .with_http_connector(self.connector.clone())
            .with_allow_http(true)
            .with_skip_signature(self.is_anonymous)
            .with_request_payer(self.is_requester_payer);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        if let Some(credentials) = &self.credentials {
            builder = builder.with_credentials(Arc::clone(credentials));
        }
        let built = builder.build().map_err(|error| error.to_string())?;
        Ok(Arc::new(built))
    }
}

fn google(
    bucket: &Bucket,
    options: &BucketOptions,
    client: reqwest::Client,
) -> Result<Arc<dyn Client>, String> {
    let mut builder = match options.anonymous {
        true => GoogleCloudStorageBuilder::new(),
        false => GoogleCloudStorageBuilder::from_env(),
    };
    builder = builder
        .with_bucket_name(&bucket.name)
        .with_retry(no_retry())
        .with_client_options(client_options())
        .with_http_connector(connector(client, options))
        .with_skip_signature(options.anonymous);
    if let Some(command) = &options.command {
        builder = builder.with_credentials(Arc::new(issued::google(Arc::clone(command))));
    }
    if let Some(endpoint) = &options.endpoint_url {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let built = builder.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(built))
}

fn azure(
    bucket: &Bucket,
    options: &BucketOptions,
    client: reqwest::Client,
) -> Result<Arc<dyn Client>, String> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(&bucket.name)
        .with_retry(no_retry())
        .with_client_options(client_options())
        .with_http_connector(connector(client, options))
        .with_allow_http(true)
        .with_skip_signature(options.anonymous);
    if let Some(command) = &options.command {
        builder = builder.with_credentials(Arc::new(issued::azure(Arc::clone(command))));
    }
    if let Some(account) = &bucket.account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = &options.endpoint_url {
        let endpoint = endpoint.trim_end_matches('/');
        // The emulator has the account in the path, as its last component unless it is named elsewhere.
        if let (None, Some((_, account))) = (&bucket.account, endpoint.rsplit_once('/'))
            && std::env::var_os("AZURE_STORAGE_ACCOUNT_NAME").is_none()
        {
            builder = builder.with_account(account);
        }
        builder = builder.with_endpoint(endpoint.to_owned());
    }
    let built = builder.build().map_err(|error| match error.to_string() {
        text if text.contains("Account must be specified") => {
            "the storage account is not known: set AZURE_STORAGE_ACCOUNT_NAME, or write \
             abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
                .to_owned()
        }
        text => text,
    })?;
    Ok(Arc::new(built))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_buckets_are_recognized() {
        let parse = |provider, url| {
            Bucket::parse(provider, url).map(|bucket| (bucket.name, bucket.prefix, bucket.account))
        };
        let of = |name: &str, prefix: &str, account: Option<&str>| {
            Ok((
                name.to_owned(),
                prefix.to_owned(),
                account.map(str::to_owned),
            ))
        };
        use Provider::{Azure, Google, S3};
        assert_eq!(parse(S3, "s3://b"), of("b", "", None));
        assert_eq!(parse(S3, "s3://b/a/c.zarr/"), of("b", "a/c.zarr", None));
        assert_eq!(parse(Google, "gs://b/x"), of("b", "x", None));
        assert_eq!(parse(Azure, "az://c/x"), of("c", "x", None));
        assert_eq!(
            parse(Azure, "abfs://c@acc.dfs.core.windows.net/x"),
            of("c", "x", Some("acc"))
        );
        assert!(parse(S3, "s3:///x").is_err());
        let secret = parse(S3, "s3://key:secret@b/x").unwrap_err();
        assert!(!secret.contains("secret"));
    }
}
