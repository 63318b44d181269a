//! `zarrfs help`: the help of a command, or a page of the manual.

use clap::{Args, CommandFactory};

use super::Cli;
use crate::store::remote_schemes;
use crate::units::nearest;

/// `zarrfs help [COMMAND | TOPIC]`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A command, or a topic of the manual
    #[arg(value_name = "COMMAND | TOPIC")]
    pub topic: Option<String>,
}

/// A page of the manual.
#[derive(Debug, Clone, Copy)]
pub struct Topic {
    /// The name in `zarrfs help NAME`.
    pub name: &'static str,
    /// The page in Markdown. The first line is its title.
    pub text: &'static str,
}

macro_rules! topics {
    ($($name:literal),* $(,)?) => {
        [$(Topic { name: $name, text: include_str!(concat!("../manual/", $name, ".md")) }),*]
    };
}

/// The topics of the manual, in listing order.
pub const TOPICS: [Topic; 24] = topics![
    "commands",
    "options",
    "views",
    "netcdf",
    "geotiff",
    "convert",
    "codecs",
    "sources",
    "remote",
    "credentials",
    "caching",
    "n5",
    "semantics",
    "errors",
    "environment",
    "json",
    "install",
    "python",
    "admin",
    "hpc",
    "containers",
    "performance",
    "security",
    "comparison",
];

/// Search words for each topic.
const RELATED: [(&str, &[&str]); 11] = [
    (
        "netcdf",
        &["nc", "cdf", "ncdump", "cdo", "nco", "h5", "hdf5"],
    ),
    ("geotiff", &["tif", "tiff", "gdal", "qgis"]),
    (
        "views",
        &["npy", "numpy", "png", "csv", "parquet", "formats"],
    ),
    ("convert", &["zarr", "v2", "v3", "as-v2", "as-v3"]),
    ("sources", &["zip", "sqlite", "kerchunk", "icechunk"]),
    ("credentials", &["aws", "azure", "login"]),
    ("hpc", &["slurm", "apptainer", "jupyter", "cluster"]),
    ("containers", &["docker", "podman", "kubernetes"]),
    ("admin", &["fstab", "systemd", "root", "overlay"]),
    (
        "semantics",
        &["posix", "consistency", "mmap", "inode", "inodes", "stat"],
    ),
    ("errors", &["eio", "estale", "messages", "diagnostics"]),
];

impl Topic {
    /// Returns the title of the page.
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches(['#', ' '])
    }
}

/// Returns the topic with a name.
pub(super) fn find_topic(name: &str) -> Option<Topic> {
    TOPICS.iter().find(|topic| topic.name == name).copied()
}

/// Returns the text of `zarrfs help`: for the program, a command, or a topic.
///
/// # Errors
/// If neither a command nor a topic has the name; the message lists the topics.
pub fn help(topic: Option<&str>) -> Result<String, String> {
    let mut command = Cli::command();
    command.build();
    let Some(name) = topic else {
        let topics = TOPICS.iter();
        let lines = topics.map(|topic| format!("  {:<12} {}\n", topic.name, topic.title()));
        let lines: String = lines.collect();
        return Ok(format!("{}\nTopics:\n{lines}", command.render_help()));
    };
    // `views` is both a topic and a command; `zarrfs views --help` shows the command.
    if !TOPICS.iter().any(|topic| topic.name == name)
        && let Some(found) = command.find_subcommand_mut(name)
    {
        return Ok(found.render_long_help().to_string());
    }
    match find_topic(name) {
        Some(topic) => Ok(topic.text.to_owned()),
        None => {
            let topics = || TOPICS.iter().map(|topic| topic.name);
            let commands = command.get_subcommands().map(clap::Command::get_name);
            let word = name.to_ascii_lowercase();
            let mut related = RELATED.iter();
            let related = related.find(|(_, words)| words.contains(&&*word));
            let related = related.map(|(topic, _)| *topic);
            let is_scheme = || remote_schemes().any(|scheme| scheme == word);
            if let Some(topic) = related.or_else(|| is_scheme().then_some("sources")) {
                return Err(format!(
                    "no command and no topic `{name}`; `zarrfs help {topic}` is about it"
                ));
            }
            let hint = match nearest(name, topics().chain(commands)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the topics are {}", topics().collect::<Vec<_>>().join(", ")),
            };
            Err(format!("no command and no topic `{name}`; {hint}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_command_or_of_a_topic() {
        assert!(help(Some("mount")).unwrap().contains("--memory-limit"));
        assert!(help(Some("netcdf")).unwrap().starts_with("# NetCDF"));
        assert!(help(Some("views")).unwrap().starts_with("# Views"));
        let all = help(None).unwrap();
        assert!(all.contains("zarrfs COMMAND") && all.contains("  geotiff "));
        let error = help(Some("nope")).unwrap_err();
        assert!(
            error.contains("`nope`") && error.contains("views, netcdf"),
            "{error}"
        );
        let error = help(Some("S3")).unwrap_err();
        assert!(error.contains("`zarrfs help sources`"), "{error}");
        let error = help(Some("vews")).unwrap_err();
        assert!(error.ends_with("did you mean `views`?"), "{error}");
        for (topic, words) in RELATED {
            assert!(find_topic(topic).is_some(), "{topic}");
            for word in words {
                let error = help(Some(word)).unwrap_err();
                assert!(error.contains(&format!("`zarrfs help {topic}`")), "{error}");
            }
        }
    }
}
