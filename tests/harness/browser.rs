//! Debian's Chromium without a display, driven by the DevTools protocol over a pipe: no port that it would be reached at by others.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::case::Bed;
use crate::pace::{self, Deadline};
use crate::wait::wait_for;

const PROGRAM: &str = "chromium-headless-shell";
/// For an answer, the first of them too: then it starts.
const ANSWER: Duration = Duration::from_secs(60);
/// For what a page comes to.
const PAGE: Duration = Duration::from_secs(60);
const LEAVE: Duration = Duration::from_secs(20);
const WIDTH: u32 = 960;
const HEIGHT: u32 = 560;

/// The browser.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    calls: u64,
    /// What pages and the browser itself have complained of.
    complaints: Vec<String>,
}

/// A page in a browser that knows no other's cookies.
#[derive(Debug)]
pub struct Page(String);

impl Browser {
    /// Starts one with a profile of its own. As root it has no sandbox; what it shows is ours.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(bed: &Bed) -> Result<Self> {
        let home = bed.dir.join("browser");
        fs::create_dir(&home)?;
        // It reads the protocol from descriptor 3, and writes it to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >&2", "sh", PROGRAM])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe"])
            .arg(format!("--window-size={WIDTH},{HEIGHT}"))
            .arg(format!("--user-data-dir={}", home.display()))
            .env("HOME", &home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(bed.logs().join("browser.log"))?)
            .spawn()
            .context("failed to start a shell")?;
        let to = child.stdin.take().context("no pipe")?;
        let from = heard(child.stdout.take().context("no pipe")?);
        let mut browser = Self { child, to, from, calls: 0, complaints: Vec::new() };
        let asked = browser.call(None, "Browser.getVersion", json!({}));
        asked.with_context(|| format!("no browser; is `{PROGRAM}` installed? `make host` does that"))?;
        Ok(browser)
    }

    /// Opens a page as if in a browser of its own.
    ///
    /// # Errors
    /// When the browser fails.
    pub fn open(&mut self, url: &str) -> Result<Page> {
        let context = self.call(None, "Target.createBrowserContext", json!({}))?;
        let place = json!({ "url": "about:blank", "browserContextId": context["browserContextId"] });
        let target = self.call(None, "Target.createTarget", place)?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call(None, "Target.attachToTarget", attach)?;
        let page = Page(session["sessionId"].as_str().context("no session")?.to_owned());
        for domain in ["Log.enable", "Runtime.enable", "Page.enable"] {
            self.call(Some(&page), domain, json!({}))?;
        }
        self.call(Some(&page), "Page.navigate", json!({ "url": url }))?;
        Ok(page)
    }

    /// What an expression of JavaScript is in a page.
    ///
    /// # Errors
    /// When it throws.
    pub fn eval(&mut self, page: &Page, expression: &str) -> Result<Value> {
        let asked = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call(Some(page), "Runtime.evaluate", asked)?;
        ensure!(answer.get("exceptionDetails").is_none(), "`{expression}` throws: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// When it is not in time: with what the page shows, and what it complained of.
    pub fn wait(&mut self, page: &Page, what: &str, expression: &str) -> Result<()> {
        // A page that is being left has nothing yet.
        let guarded = format!("(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()");
        let waited = wait_for(what, PAGE, || {
            let value = self.eval(page, &guarded).unwrap_or_default();
            Ok((value == Value::Bool(true)).then_some(()))
        });
        waited.map_err(|late| {
            let shows = self.eval(page, "document.body.innerText + ' ' + JSON.stringify(document.body.dataset)");
            late.context(format!("the page shows {shows:?}; complaints: {:?}", self.complaints))
        })
    }

    /// Presses keys of a US keyboard, one after the other: small letters, digits, some signs; a new line is Enter.
    ///
    /// # Errors
    /// When there is no such key, or the browser fails.
    pub fn press(&mut self, page: &Page, keys: &str) -> Result<()> {
        for key in keys.chars() {
            let (code, name, number) = match key {
                'a'..='z' => {
                    (format!("Key{}", key.to_ascii_uppercase()), key.to_string(), key.to_ascii_uppercase() as u32)
                }
                '0'..='9' => (format!("Digit{key}"), key.to_string(), key as u32),
                ' ' => ("Space".into(), " ".into(), 32),
                '-' => ("Minus".into(), "-".into(), 189),
                '/' => ("Slash".into(), "/".into(), 191),
                '=' => ("Equal".into(), "=".into(), 187),
                '\n' => ("Enter".into(), "Enter".into(), 13),
                other => anyhow::bail!("no key for {other:?}"),
            };
            let text = if key == '\n' { "\r".to_owned() } else { name.clone() };
            let down =
                json!({ "type": "keyDown", "code": code, "key": name, "text": text, "windowsVirtualKeyCode": number });
            let up = json!({ "type": "keyUp", "code": code, "key": name, "windowsVirtualKeyCode": number });
            self.call(Some(page), "Input.dispatchKeyEvent", down)?;
            self.call(Some(page), "Input.dispatchKeyEvent", up)?;
        }
        Ok(())
    }

    /// What a page looks like, as PNG.
    ///
    /// # Errors
    /// When the browser fails.
    pub fn picture(&mut self, page: &Page) -> Result<Vec<u8>> {
        let shot = self.call(Some(page), "Page.captureScreenshot", json!({ "format": "png" }))?;
        Ok(BASE64.decode(shot["data"].as_str().context("no picture")?)?)
    }

    /// What pages have complained of so far: of a policy that stands in their way, of exceptions, of errors.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it does not end.
    pub fn leave(mut self) -> Result<()> {
        self.call(None, "Browser.close", json!({}))?;
        wait_for("end of the browser", LEAVE, || Ok(self.child.try_wait()?)).map(drop)
    }

    fn call(&mut self, page: Option<&Page>, method: &str, params: Value) -> Result<Value> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(Page(session)) = page {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).context("the browser has ended")?;
        let deadline = Deadline::within(ANSWER);
        loop {
            let heard = pace::receive(&self.from, deadline).with_context(|| format!("no answer to {method}"))?;
            if heard["id"] == self.calls {
                ensure!(heard.get("error").is_none(), "{method}: {}", heard["error"]);
                return Ok(heard["result"].clone());
            }
            match heard["method"].as_str() {
                Some("Log.entryAdded") => self.complaints.push(heard["params"]["entry"]["text"].to_string()),
                Some("Runtime.exceptionThrown") => self.complaints.push(heard["params"].to_string()),
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    /// It ends by itself when its pipe does, which is after this; the shell in front of it does not.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Messages, each of which ends with a NUL.
fn heard(from: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let messages = BufReader::new(from).split(0);
        for message in messages.map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&message) else { break };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    receiver
}
