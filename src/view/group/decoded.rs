//! Elements that are decoded as a whole to make a file: texts, structures with text, and numbers.

use std::sync::Arc;

use super::tree::{DecodedTexts, TreeScope};
use crate::array::{self, Selection, ServedVersions, read_elements};
use crate::codec::Element;
use crate::fallible::{self, List};
use crate::node::{ContentError, NodeElements, Number, Value, ViewNode, code_points};
use crate::runtime::leave_session_thread;
use crate::store::{StoreError, in_memory};
use crate::view::file::nodes::Nodes;
use crate::view::format::netcdf4;
use crate::zarr::{Array, ByteOrder, DataType, Fixed, Node, Scalar, Variable};

/// The maximum size of the decoded text of one array, in bytes.
const MAX_TEXT_BYTES: u64 = 4 << 20;
/// The maximum size of the decoded text or lists of one array in a file with the unchanged hierarchy, in bytes.
const MAX_RAW_BYTES: u64 = 256 << 20;
/// The numbers of one array take at most this fraction (1/64) of the memory limit.
const MAX_NUMBERS_PART: u64 = 64;

impl Nodes {
    /// Returns the elements of an array of structures that the file has in another form: text, and in netCDF
    /// ([`TreeScope::Subtree`]) half floats.
    pub(in crate::view) async fn records_of(
        &self,
        node: &ViewNode,
        scope: TreeScope,
    ) -> Result<Option<Result<Arc<Vec<u8>>, String>>, ContentError> {
        let Some(reader) = node.reader().filter(|reader| {
            let data_type = reader.chunks().data_type();
            let is_changed = match scope {
                TreeScope::RawSubtree => has_text(data_type),
                TreeScope::Subtree => netcdf4::needs_encoding(data_type),
                TreeScope::Group | TreeScope::Table => false,
            };
            matches!(data_type.scalar, Scalar::Struct(_)) && is_changed
        }) else {
            return Ok(None);
        };
        let most = MAX_TEXT_BYTES.min(self.engine().memory_limit_bytes() / 32);
        if reader.size_bytes() > most {
            let what = match scope {
                TreeScope::RawSubtree => "structures with text",
                TreeScope::Group | TreeScope::Table | TreeScope::Subtree => {
                    "structures with text or half floats"
                }
            };
            let why = format!("more than {most} bytes of {what}");
            return Ok(Some(Err(why)));
        }
        let bytes = self.all_bytes(node).await?;
        Ok(Some(Ok(Arc::new(bytes))))
    }

    /// Returns the decoded text of an array; `None` for other arrays, and for text of constant size in the
    /// file. The inner error is the reason why the text is not decoded.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn texts_of(
        &self,
        node: &ViewNode,
        scope: TreeScope,
    ) -> Result<Option<DecodedTexts>, ContentError> {
        let memory = self.engine().memory_limit_bytes();
        match scope {
            // Such text has a constant size in the file, too.
            TreeScope::RawSubtree if matches!(node.elements, NodeElements::Fixed(_)) => Ok(None),
            TreeScope::RawSubtree => self.texts_within(node, self.most_raw_bytes()).await,
            TreeScope::Group | TreeScope::Table | TreeScope::Subtree => {
                let most = MAX_TEXT_BYTES.min(memory / 32);
                self.texts_within(node, most).await
            }
        }
    }

    /// Returns the decoded text of an array, if it has at most `most` bytes; `None` for other arrays. The inner error
    /// is the reason why the text is not decoded.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn texts_within(
        &self,
        node: &ViewNode,
        most: u64,
    ) -> Result<Option<DecodedTexts>, ContentError> {
        match &node.elements {
            NodeElements::Fixed(reader) => {
                let data_type = reader.chunks().data_type();
                let Scalar::Text(order) = data_type.scalar else {
                    return Ok(None);
                };
                if reader.size_bytes() > most {
                    return Ok(Some(Err(too_much(most))));
                }
                let bytes = self.all_bytes(node).await?;
                let texts = bytes.chunks_exact(data_type.size_bytes.max(4));
                let mut found = List::default();
                for text in texts {
                    match utf32(text, order) {
                        Some(text) => found.push(text),
                        None => return Ok(Some(Err("not the code points of any text".into()))),
                    }
                }
                Ok(Some(Ok(Arc::new(found.finish()?))))
            }
            NodeElements::Variable(..) => {
                let Some(array) = node.metadata().as_array().filter(|array| is_text(array)) else {
                    return Ok(None);
                };
                let Some(elements) = self.elements_of(node, most).await? else {
                    return Ok(None);
                };
                let elements = match elements {
                    Ok(elements) => elements,
                    Err(why) => return Ok(Some(Err(why))),
                };
                Ok(match array::texts(array, elements.iter())? {
                    Some(texts) => Some(Ok(Arc::new(texts))),
                    // The values of objects that are no text are in `.json`.
                    None if array::may_be_text(array) => None,
                    None => Some(Err("not text".to_owned())),
                })
            }
            _ => Ok(None),
        }
    }

    /// Returns the items of each element of an array of byte strings or lists; `None` for other arrays. The inner
    /// error is the reason why the elements are not decoded.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn sequences_of(
        &self,
        node: &ViewNode,
    ) -> Result<Option<Result<Arc<Vec<Vec<u8>>>, String>>, ContentError> {
        let data_type = node.metadata().as_array().map(|array| &array.data_type);
        let Some(Ok(DataType::Variable(Variable::Bytes | Variable::Array(_)))) = data_type else {
            return Ok(None);
        };
        let Some(elements) = self.elements_of(node, self.most_raw_bytes()).await? else {
            return Ok(None);
        };
        let of_bytes = |element: &Element| match element {
            Element::Bytes(bytes) | Element::Array(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let elements = match elements {
            Ok(elements) => elements,
            Err(why) => return Ok(Some(Err(why))),
        };
        let mut sequences = List::default();
        for element in elements.iter() {
            match of_bytes(element) {
                Some(bytes) => sequences.push(bytes),
                None => return Ok(Some(Err("not bytes".into()))),
            }
        }
        Ok(Some(Ok(Arc::new(sequences.finish()?))))
    }

    fn most_raw_bytes(&self) -> u64 {
        MAX_RAW_BYTES.min(self.engine().memory_limit_bytes() / 16)
    }

    /// Returns the elements of variable length of an array, of which the values have at most `most` bytes; `None`
    /// for other arrays. The inner error is the reason why they are not decoded.
    ///
    /// # Errors
    /// Errors of the store.
    async fn elements_of(
        &self,
        node: &ViewNode,
        most: u64,
    ) -> Result<Option<Result<array::Elements, String>>, ContentError> {
        let (Node::Array(array), NodeElements::Variable(pipeline, store)) =
            (node.metadata(), &node.elements)
        else {
            return Ok(None);
        };
        let engine = self.engine();
        let elements = read_elements(store.current(), node.key(), array, pipeline, most, engine);
        match elements.await {
            Ok(elements) => Ok(Some(Ok(elements.into_value()))),
            // The system may have memory again.
            Err(error @ StoreError::TooLarge { .. }) if !error.is_lasting() => Err(error.into()),
            Err(StoreError::TooLarge {
                need_bytes,
                limit_bytes,
                ..
            }) => Ok(Some(Err(match limit_bytes == most {
                true => too_much(most),
                false => format!(
                    "{need_bytes} bytes of memory for its elements, {limit_bytes} are the limit"
                ),
            }))),
            Err(error) => Err(ContentError::Failed(error)),
        }
    }

    /// Returns all bytes of a small array.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn all_bytes(
        &self,
        node: &ViewNode,
    ) -> Result<Vec<u8>, ContentError> {
        let Some(reader) = node.reader() else {
            return Err(ContentError::Absent("no elements of constant size".into()));
        };
        leave_session_thread().await;
        let size = in_memory(reader.size_bytes())?;
        let served = ServedVersions::new(self.engine());
        let mut bytes = List::default();
        while bytes.len() < size {
            let (at, left) = (bytes.len() as u64, size - bytes.len());
            let read = reader
                .read(Selection::RowMajor, at, left, Some(&served))
                .await?;
            let part = read.bytes(&[])?;
            if part.is_empty() {
                let what = format!("{at} bytes of elements instead of {size}");
                let key = node.key().clone();
                return Err(StoreError::Internal { key, what }.into());
            }
            let before = bytes.len();
            bytes.extend_from_slice(part);
            if bytes.len() == before {
                break;
            }
        }
        Ok(bytes.finish()?)
    }

    /// Returns all numbers of a small array in C order.
    ///
    /// # Errors
    /// As [`NodeResolver::numbers`](crate::node::NodeResolver::numbers).
    pub(in crate::view) async fn numbers(
        &self,
        node: &ViewNode,
        most: u64,
    ) -> Result<Vec<Value>, ContentError> {
        let Some(view) = node.array_view() else {
            return Err(ContentError::Absent("no numbers".into()));
        };
        let Some((number, 1)) = view.number() else {
            return Err(ContentError::Absent("no numbers".into()));
        };
        // Numbers take more memory than storage.
        let room = self.engine().memory_limit_bytes() / MAX_NUMBERS_PART;
        let most = most.min(room / size_of::<Value>() as u64);
        if view.reader.size_bytes() / number.size_bytes as u64 > most {
            return Err(ContentError::Absent(format!("more than {most} numbers")));
        }
        let bytes = self.all_bytes(node).await?;
        let numbers = bytes.chunks_exact(number.size_bytes);
        let numbers = numbers.filter_map(|bytes| Number::read(number, bytes));
        Ok(fallible::collect(numbers)?)
    }
}

fn too_much(most: u64) -> String {
    format!("more than {most} bytes of text or lists")
}

/// Returns whether the elements of an array are text of variable length, or may be.
fn is_text(array: &Array) -> bool {
    array.data_type == Ok(DataType::Variable(Variable::Text)) || array::may_be_text(array)
}

/// Decodes text of 4-byte code points, without the NULs at its end.
fn utf32(bytes: &[u8], order: ByteOrder) -> Option<String> {
    code_points(bytes, order).map(char::from_u32).collect()
}

/// Returns whether elements are text of code points, or contain it.
fn has_text(data_type: &Fixed) -> bool {
    match &data_type.scalar {
        Scalar::Text(_) => true,
        Scalar::SubArray { item, .. } => has_text(item),
        Scalar::Struct(fields) => fields.iter().any(|field| has_text(&field.data_type)),
        _ => false,
    }
}
