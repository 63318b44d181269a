//! The token of the user, from the places that `huggingface_hub` reads ("Environment variables" in its
//! documentation).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http::HeaderValue;

use crate::store::remote::protocol::Variables;

/// Where the token is.
#[derive(Clone)]
pub(super) enum Token {
    /// In `HF_TOKEN`, or in `HUGGING_FACE_HUB_TOKEN`, its name before 2023.
    Value(String),
    /// In the file that `hf auth login` writes, which need not exist.
    File(PathBuf),
    /// Nowhere: the user has no home directory.
    None,
}

impl fmt::Debug for Token {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::None => f.write_str("None"),
        }
    }
}

impl Token {
    /// Finds the place of the token.
    pub(super) fn find(variables: Variables<'_>) -> Self {
        let variable = |name: &str| variables(name).filter(|value| !value.is_empty());
        let value = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
        if let Some(value) = value.as_deref().and_then(cleaned) {
            return Self::Value(value);
        }
        let below = |directory: &str, name: &str| Path::new(directory).join(name);
        let file = variable("HF_TOKEN_PATH").map(PathBuf::from);
        let file = file.or_else(|| Some(below(&variable("HF_HOME")?, "token")));
        let file = file.or_else(|| Some(below(&variable("XDG_CACHE_HOME")?, "huggingface/token")));
        let file = file.or_else(|| Some(below(&variable("HOME")?, ".cache/huggingface/token")));
        file.map_or(Self::None, Self::File)
    }

    /// Returns the header that has the token; `None` without a token.
    ///
    /// # Errors
    /// The file of the token cannot be read, or the token is not one. The message does not contain it.
    pub(super) fn read(&self) -> Result<Option<HeaderValue>, String> {
        let (text, place) = match self {
            Self::Value(value) => (value.clone(), "HF_TOKEN".to_owned()),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => (text, path.display().to_string()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    let path = path.display();
                    return Err(format!(
                        "the token in {path} cannot be read: {error} (--anonymous sends none)"
                    ));
                }
            },
            Self::None => return Ok(None),
        };
        let Some(text) = cleaned(&text) else {
            return Ok(None);
        };
        let value = HeaderValue::from_str(&format!("Bearer {text}"));
        let mut value = value.map_err(|_| format!("{place}: not a token of Hugging Face"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Returns the token without white space at its ends; `None` if nothing is left.
fn cleaned(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Token {
        Token::find(&|name| {
            let found = variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_token_comes_from_the_places_of_huggingface_hub() {
        let home = ("HOME", "/home/ada");
        for (variables, place) in [
            (vec![home], "/home/ada/.cache/huggingface/token"),
            (vec![home, ("XDG_CACHE_HOME", "/c")], "/c/huggingface/token"),
            (vec![home, ("HF_HOME", "/h")], "/h/token"),
            (vec![("HF_HOME", "/h"), ("HF_TOKEN_PATH", "/t")], "/t"),
            (
                vec![home, ("HF_TOKEN", "")],
                "/home/ada/.cache/huggingface/token",
            ),
        ] {
            assert_eq!(
                format!("{:?}", find(&variables)),
                format!("File({place:?})")
            );
        }
        let token = find(&[
            home,
            ("HF_TOKEN", " secret\n"),
            ("HUGGING_FACE_HUB_TOKEN", "old"),
        ]);
        assert_eq!(format!("{token:?}"), "Value");
        let header = token.read().unwrap().unwrap();
        assert_eq!(header.as_bytes(), b"Bearer secret");
        assert!(!format!("{header:?}").contains("secret"));
        let old = find(&[("HUGGING_FACE_HUB_TOKEN", "old")]).read().unwrap();
        assert_eq!(old.unwrap().as_bytes(), b"Bearer old");
        let error = find(&[("HF_TOKEN", "sec\u{1}ret")]).read().unwrap_err();
        assert!(!error.contains("sec"), "{error}");
        assert!(find(&[("HF_HOME", "/no/such")]).read().unwrap().is_none());
        assert!(find(&[]).read().unwrap().is_none());
    }
}
