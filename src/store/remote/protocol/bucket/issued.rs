//! The credentials of `--credential-command`, for the clients of object stores.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use object_store::gcp::GcpCredential;

use super::service::record_no_credentials;
use crate::store::remote::protocol::credential_command::{CredentialCommand, Credentials};

/// Credentials of one kind.
pub(super) struct Issued<T> {
    command: Arc<CredentialCommand>,
    /// Returns the credentials of this kind, if the command has printed some.
    convert: fn(&Credentials) -> Option<T>,
    /// What the command must print.
    wanted: &'static str,
}

impl<T> fmt::Debug for Issued<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }
}

/// Returns keys for S3.
pub(super) fn aws(command: Arc<CredentialCommand>) -> Issued<AwsCredential> {
    Issued {
        command,
        convert: |issued| {
            let keys = issued.keys.clone()?;
            Some(AwsCredential {
                key_id: keys.id,
                secret_key: keys.secret,
                token: keys.token,
            })
        },
        wanted: "AWS keys",
    }
}

/// Returns a shared access signature or a bearer token for Azure.
pub(super) fn azure(command: Arc<CredentialCommand>) -> Issued<AzureCredential> {
    Issued {
        command,
        convert: |issued| match &issued.query {
            Some(query) => {
                let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned();
                Some(AzureCredential::SASToken(pairs.collect()))
            }
            None => Some(AzureCredential::BearerToken(issued.bearer()?.to_owned())),
        },
        wanted: "`sas`, or a bearer token in the header Authorization",
    }
}

/// Returns a bearer token for Google Cloud Storage.
pub(super) fn google(command: Arc<CredentialCommand>) -> Issued<GcpCredential> {
    Issued {
        command,
        convert: |issued| {
            let bearer = issued.bearer()?.to_owned();
            Some(GcpCredential { bearer })
        },
        wanted: "a bearer token in the header Authorization",
    }
}

#[async_trait]
impl<T: Send + Sync + 'static> CredentialProvider for Issued<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        let issued = self.command.credentials().await;
        let found = issued.and_then(|issued| {
            let wanted = || format!("--credential-command: it does not print {}", self.wanted);
            (self.convert)(&issued).ok_or_else(wanted)
        });
        found.map(Arc::new).map_err(|what| {
            record_no_credentials(&what);
            object_store::Error::Generic {
                store: "bucket",
                source: what.into(),
            }
        })
    }
}
