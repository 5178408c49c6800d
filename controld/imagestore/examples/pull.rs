//! Times one pull: `pull URL DIR [--raw]`.
//!
//! Opens a store in DIR, pulls URL into it, and prints one line: milliseconds of the pull alone, bytes, id, and the most
//! memory that the process had, in KiB. What is there already is pulled anew, so runs may be repeated with the same DIR.

use std::path::PathBuf;
use std::time::Instant;

use imagestore::{Config, PullRequest, Store};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the figure is what the program is for")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: pull URL DIR [--raw]".into());
    };
    let dir = PathBuf::from(dir);
    let rules = dir.join("rules");
    std::fs::create_dir_all(&rules)?;
    let rule = serde_json::json!({ "translations": [{ "name": "bench", "url": url }] });
    std::fs::write(rules.join("bench.json"), rule.to_string())?;
    let mut config = Config::new(dir.join("images"));
    config.translations_dir = Some(rules);
    config.allow_raw = arguments.next().as_deref() == Some("--raw");
    config.net.policy.allow_loopback = true;
    let store = Store::open(config)?;
    let started = Instant::now();
    let image = store.pull(PullRequest { force: true, ..PullRequest::from("bench") }).await?;
    let took = started.elapsed().as_millis();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).map_or("?", |peak| peak.trim());
    println!("{took} {} {} {peak}", std::fs::metadata(&image.path)?.len(), image.id);
    Ok(())
}
