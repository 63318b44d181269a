//! Opens a parsed source: finds out what is there, unless the source says it.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::{OpenError, OpenOptions, SourceKind, SourceLocation, SourceName};
use crate::store::icechunk;
use crate::store::reference::{self, BaseLocation};
use crate::store::remote::{self, OpenedSource, RemoteOpenError};
use crate::store::zip::ZipError;
use crate::store::{
    DirStore, Key, KeyClasses, Store, StoreError, ZipStore, database, file_type, stac,
};

/// Opens a source.
///
/// # Errors
/// [`OpenError`], which names the source.
pub(super) async fn open(
    source: &SourceName,
    options: &OpenOptions,
) -> Result<Box<dyn Store>, OpenError> {
    let mut with_version;
    let mut options = options;
    if let Some(version) = &source.version {
        if let Some(option) = options
            .icechunk
            .reference
            .as_ref()
            .filter(|it| *it != version)
        {
            return Err(OpenError::TwoVersions {
                option: option.clone(),
                part: version.clone(),
            });
        }
        with_version = options.clone();
        with_version.icechunk.reference = Some(version.clone());
        options = &with_version;
    }
    let is_zip = source.kind == Some(SourceKind::Zip);
    let (store, base) = match &source.location {
        SourceLocation::Path(path) => {
            let store = open_local(path, source, options)?;
            let base = BaseLocation::Directory(path.clone());
            let store = match icechunk::detect_local(&*store, options.classes).await {
                Some(layout) if path.is_dir() => {
                    let store: Arc<dyn Store> = Arc::from(store);
                    let stores = (Arc::clone(&store), store);
                    return open_icechunk(layout, stores, base, options).await;
                }
                _ => store,
            };
            let directory = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new("."));
            (store, BaseLocation::Directory(directory.to_owned()))
        }
        SourceLocation::Url(url) => {
            let base = BaseLocation::Url(url.trim_end_matches('/').to_owned());
            let opened = remote::open(url, is_zip, &options.remote, options.classes).await;
            let opened = match opened {
                Err(error) if !is_zip && remote::may_be_redirected(&error) => {
                    return open_redirected(url, error, options).await;
                }
                opened => opened?,
            };
            match opened {
                OpenedSource::Icechunk {
                    layout,
                    refs,
                    files,
                } => return open_icechunk(layout, (refs, files), base, options).await,
                found => (open_remote(found, url, source, options).await?, base),
            }
        }
    };
    if source.kind == Some(SourceKind::Icechunk) {
        return Err(OpenError::NotIcechunk {
            source_name: store.label().to_owned(),
        });
    }
    if let Some(name) = &options.icechunk.reference {
        return Err(OpenError::NoVersions {
            source_name: store.label().to_owned(),
            name: name.clone(),
        });
    }
    let label = store.label().to_owned();
    let recognised = reference::detect(store, &source.root, base, options).await;
    recognised.map_err(|error| OpenError::Reference {
        source_name: label,
        error,
    })
}

fn open_local(
    path: &Path,
    source: &SourceName,
    options: &OpenOptions,
) -> Result<Box<dyn Store>, OpenError> {
    let failed = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    let is_zip = source.kind == Some(SourceKind::Zip);
    let label = path.to_string_lossy();
    let of_stem = match path.exists() {
        true => None,
        false => database::file_of_stem(path),
    };
    let path = of_stem.as_deref().unwrap_or(path);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let is_node = |name: &&str| path.join(name).exists();
    let is_hierarchy = metadata.is_dir() && options.classes.node_documents.iter().any(is_node);
    if (metadata.is_dir() || metadata.is_file()) && !is_zip && !is_hierarchy {
        let opened = database::open(path, &label, options.database);
        if let Some(opened) = opened.transpose() {
            let opened = opened.map(|store| Box::new(store) as _);
            return opened.map_err(|error| OpenError::Database {
                path: path.to_owned(),
                error,
            });
        }
    }
    if metadata.is_dir() && !is_zip {
        return Ok(Box::new(DirStore::open(path, options.dir).map_err(failed)?));
    }
    if !metadata.is_file() {
        return Err(OpenError::WrongKind {
            path: path.to_owned(),
        });
    }
    if !is_zip && !source.is_asset {
        let opened = stac::open_file(path, &label, options).transpose();
        if let Some(opened) = opened {
            let opened = opened.map(|store| Box::new(store) as _);
            return opened.map_err(|error| OpenError::Stac {
                source_name: label.into_owned(),
                error,
            });
        }
    }
    if !is_zip {
        let opened = reference::open_file(path, &label, options).transpose();
        if let Some(opened) = opened {
            let opened = opened.map(|store| Box::new(store) as _);
            return opened.map_err(|error| OpenError::Reference {
                source_name: label.into_owned(),
                error,
            });
        }
    }
    let file = File::open(path).map_err(failed)?;
    ZipStore::open(file, &label, options.zip)
        .map(|store| Box::new(store) as _)
        .map_err(|error| match (error, other_format(path, options.classes)) {
            (ZipError::NoDirectory, Some(what)) => OpenError::OtherFormat {
                path: path.to_owned(),
                what,
            },
            (ZipError::NoDirectory, None) if file_type::is_zip_entry(path) => {
                OpenError::Truncated {
                    path: path.to_owned(),
                    size_bytes: metadata.len(),
                }
            }
            (error, _) => OpenError::Zip {
                source_name: label.into_owned(),
                error,
            },
        })
}

const METADATA: &str = "a document of Zarr metadata; the directory that holds it is the source";

/// Whether the last component of a URL is the name of a metadata document.
fn is_document(url: &str, classes: KeyClasses) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    Key::new(name.as_bytes()).is_ok_and(|name| classes.is_document(&name))
}

/// Describes a file that is no zip archive, by its name or its first bytes.
fn other_format(path: &Path, classes: KeyClasses) -> Option<&'static str> {
    let name = Key::new(path.file_name()?.as_bytes()).ok()?;
    match classes.is_document(&name) {
        true => Some(METADATA),
        false => file_type::describe(&File::open(path).ok()?),
    }
}

/// Opens a repository, given a store for the files that change, and a store for all other files.
async fn open_icechunk(
    layout: icechunk::Layout,
    (refs, files): (Arc<dyn Store>, Arc<dyn Store>),
    base: BaseLocation,
    options: &OpenOptions,
) -> Result<Box<dyn Store>, OpenError> {
    let source_name = files.label().to_owned();
    match icechunk::open(layout, refs, files, base, options).await {
        Ok(store) => Ok(Box::new(store)),
        Err(error) => Err(OpenError::Icechunk { source_name, error }),
    }
}

/// Opens the Icechunk repository to whose storage a URL redirects; `error` is that of opening the URL itself.
async fn open_redirected(
    url: &str,
    error: RemoteOpenError,
    options: &OpenOptions,
) -> Result<Box<dyn Store>, OpenError> {
    let (remote, classes) = (&options.remote, options.classes);
    let Some(storage) = remote::redirected_storage(url, remote, classes).await? else {
        return Err(error.into());
    };
    let options = OpenOptions {
        remote: storage.options,
        ..options.clone()
    };
    let label = remote::label(&storage.url);
    log::info!("{}: it is redirected to {label}", remote::label(url));
    match remote::open(&storage.url, false, &options.remote, classes).await? {
        OpenedSource::Icechunk {
            layout,
            refs,
            files,
        } => {
            let base = BaseLocation::Url(storage.url.trim_end_matches('/').to_owned());
            open_icechunk(layout, (refs, files), base, &options).await
        }
        _ => Err(OpenError::NotIcechunk { source_name: label }),
    }
}

async fn open_remote(
    found: OpenedSource,
    url: &str,
    source: &SourceName,
    options: &OpenOptions,
) -> Result<Box<dyn Store>, OpenError> {
    match found {
        OpenedSource::Tree(store) => Ok(store),
        OpenedSource::Icechunk { files, .. } => Err(OpenError::Icechunk {
            source_name: files.label().to_owned(),
            error: StoreError::internal("a repository that was not opened").into(),
        }),
        OpenedSource::Archive(archive, tail) => {
            let label = archive.label().to_owned();
            let reader = Arc::clone(&archive) as _;
            match ZipStore::open_remote(reader, tail, &label, options.zip).await {
                Ok(store) => Ok(Box::new(store)),
                Err(ZipError::NoDirectory) => {
                    Err(remote::other_format_error(&archive).await.into())
                }
                Err(error) => Err(OpenError::Zip {
                    source_name: label,
                    error,
                }),
            }
        }
        OpenedSource::Json { object, head, tail } => {
            let label = object.label().to_owned();
            if !source.is_asset {
                let opened = stac::open_remote(&*object, (&head, &tail), url, &label, options);
                match opened.await {
                    Ok(Some(store)) => return Ok(Box::new(store)),
                    Ok(None) => {}
                    Err(error) => {
                        return Err(OpenError::Stac {
                            source_name: label,
                            error,
                        });
                    }
                }
            }
            let opened = reference::open_remote(&*object, &tail, url, &label, options).await;
            match opened {
                Ok(Some(store)) => Ok(Box::new(store)),
                Ok(None) if is_document(url, options.classes) => {
                    let what = METADATA.to_owned();
                    Err(RemoteOpenError::OtherFormat { label, what }.into())
                }
                Ok(None) => Err(remote::other_format_error(&object).await.into()),
                Err(error) => Err(OpenError::Reference {
                    source_name: label,
                    error,
                }),
            }
        }
    }
}
