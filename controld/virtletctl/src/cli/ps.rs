//! `ps`, which is `get` and `ls`, too.

use clap::Args;

use super::Scope;
use crate::filter::{self, Filter};
use crate::jsonpath::JsonPath;
use crate::selector::{self, Fields};
use crate::template::{self, Template};
use crate::{cli, complete, name};

/// Of `ps`.
#[derive(Debug, Args)]
pub struct Ps {
    /// Names of pods, also as NAMESPACE/NAME or pod/NAME, or beginnings of their or their containers' ids [default: all; of `ps`,
    /// those that run]
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub names: Vec<String>,
    /// Also what does not run, as `get` does in any case
    #[arg(short, long)]
    pub all: bool,
    /// Also pods that the container runtime behind controld has; each row says of which kind it is
    #[arg(long)]
    pub containers: bool,
    /// Only ids of pods, in full
    #[arg(short, long, conflicts_with_all = ["output", "json", "format"])]
    pub quiet: bool,
    /// Go on, with a row for each that changes
    #[arg(short, long)]
    pub watch: bool,
    /// Which pods.
    #[command(flatten)]
    pub scope: Scope,
    /// Only rows with such fields, such as `state=Exited` or `namespace!=default`; the fields are those of `-o json`, and kubectl's
    /// metadata.name, metadata.namespace and status.phase
    #[arg(long, value_name = "FIELDS", default_value = "", hide_default_value = true, value_parser = selector::fields)]
    pub field_selector: Fields,
    /// Only such pods, as docker has it: by name, id, label, status or ancestor, which is the image; may be repeated
    #[arg(short, long = "filter", value_name = "KEY=VALUE", value_parser = filter::parse)]
    pub filters: Vec<Filter>,
    /// Rows in the order of this field, such as `created` or `.metadata.name` [default: by namespace and name]
    #[arg(long, value_name = "FIELD", value_parser = selector::sort_field)]
    pub sort_by: Option<String>,
    /// Ids in full
    #[arg(long)]
    pub no_trunc: bool,
    /// A line for each row, as docker has it: `{{.Names}} {{.State}}`, behind `table` with heads; `json` is an object a line
    #[arg(long, value_name = "TEMPLATE", value_parser = template::parse, conflicts_with_all = ["output", "json"])]
    pub format: Option<Template>,
    /// How to print: wide, json, yaml, name, or jsonpath=TEMPLATE [default: a table]
    #[arg(short, long, value_name = "FORM", value_parser = shape)]
    output: Option<Shape>,
    /// Same as `-o json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Forms of a list.
#[derive(Debug, Clone)]
pub enum Shape {
    /// One that other results have, too.
    Form(cli::Form),
    /// What a path leads to.
    Path(JsonPath),
}

fn shape(text: &str) -> Result<Shape, String> {
    let form = match text {
        "wide" => cli::Form::Wide,
        "json" => cli::Form::Json,
        "yaml" => cli::Form::Yaml,
        "name" => cli::Form::Name,
        "table" => return Err("a table is what comes without -o; leave it out".into()),
        _ => match text.split_once('=') {
            Some(("jsonpath", path)) => return path.parse().map(Shape::Path),
            Some(("go-template", _)) => return Err("templates are written as docker does, by --format".into()),
            Some(("custom-columns", _)) => {
                return Err("columns are chosen by --format 'table {{.Name}}\\t{{.IP}}'".into());
            }
            _ => return Err("none of wide, json, yaml, name and jsonpath=TEMPLATE".into()),
        },
    };
    Ok(Shape::Form(form))
}

impl Ps {
    /// What is wanted, if it is no table of the usual width.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        if self.json { Some(Shape::Form(cli::Form::Json)) } else { self.output.clone() }
    }
}
