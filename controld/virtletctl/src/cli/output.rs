//! How a list is printed, and progress told: the same of every command.

use clap::{Args, ValueEnum};

/// Forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Names alone
    Name,
}

/// How to print; a table if nothing is said.
#[derive(Debug, Default, Args)]
pub struct Output {
    /// How to print [default: a table]
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,
    /// Same as `-o json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl Output {
    /// What is wanted, if it is no table of the usual width.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        if self.json { Some(Form::Json) } else { self.output }
    }
}

/// How to say how far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// One line that changes, on a terminal; else only what became of it
    Auto,
    /// A line every now and then
    Plain,
    /// JSON, one object a line
    Json,
    /// Not at all
    None,
}
