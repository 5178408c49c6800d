//! Glance and Keystone, the real ones from PyPI, each on sqlite and Python's own WSGI server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::disk::Disk;
use super::{ADDRESS, furnish, listening};
use crate::case::Bed;
use crate::command::{command, run};
use crate::daemon::Daemon;

const GLANCE: u16 = 9292;
const KEYSTONE: u16 = 5005;
/// Of Keystone's administrator `admin`, as the peers' builder has set it.
pub const PASSWORD: &str = "secret";
const REGION: &str = "here";

/// The image service.
#[derive(Debug)]
pub struct Glance {
    /// The process.
    pub daemon: Daemon,
    token: Option<String>,
    answer: PathBuf,
}

/// The identity service.
#[derive(Debug)]
pub struct Keystone {
    /// The process.
    pub daemon: Daemon,
    /// A token of the administrator.
    pub token: String,
    user: String,
    answer: PathBuf,
}

/// What Keystone takes instead of a password.
#[derive(Debug, Clone)]
pub struct ApplicationCredential {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl Glance {
    /// Starts Glance for everybody, without Keystone.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::configured(bed, "", None)
    }

    /// Starts Glance for those whom `keystone` knows.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn behind(bed: &Bed, keystone: &Keystone) -> Result<Self> {
        let auth = format!(
            "[keystone_authtoken]\nwww_authenticate_uri = {url}\ninterface = public\nauth_url = {url}\nauth_type = password\n\
             username = admin\npassword = {PASSWORD}\nproject_name = admin\n\
             user_domain_id = default\nproject_domain_id = default\n",
            url = keystone.url()
        );
        Self::configured(bed, &auth, Some(keystone.token.clone()))
    }

    fn configured(bed: &Bed, auth: &str, token: Option<String>) -> Result<Self> {
        let peer = bed.config.peer("python")?;
        let dir = bed.dir.join("glance");
        fs::create_dir_all(dir.join("store"))?;
        fs::copy(peer.join("seed/glance.sqlite"), dir.join("glance.sqlite"))?;
        // Without Keystone nobody has a role, and everybody may do everything.
        let rules = "default add_image publicize_image get_image get_images download_image upload_image modify_image";
        let policy: String = rules.split(' ').map(|rule| format!("'{rule}': '@'\n")).collect();
        fs::write(dir.join("policy.yaml"), if token.is_some() { String::new() } else { policy })?;
        let flavor = if token.is_some() { "keystone" } else { "" };
        let (at, lib) = (dir.display(), peer.join("lib"));
        let config = format!(
            "[DEFAULT]\nenabled_backends = files:file\n\
             [os_glance_staging_store]\nfilesystem_store_datadir = {at}/staging\n\
             [os_glance_tasks_store]\nfilesystem_store_datadir = {at}/tasks\n\
             [glance_store]\ndefault_backend = files\n[files]\nfilesystem_store_datadir = {at}/store\n\
             [database]\nconnection = sqlite:///{at}/glance.sqlite\n[oslo_concurrency]\nlock_path = {at}/locks\n\
             [paste_deploy]\nflavor = {flavor}\nconfig_file = {}/etc/glance/glance-api-paste.ini\n\
             [oslo_policy]\npolicy_file = {at}/policy.yaml\nenforce_scope = false\nenforce_new_defaults = false\n{auth}",
            lib.display()
        );
        fs::write(dir.join("glance-api.conf"), config)?;
        let mut daemon = serve(bed, "glance", GLANCE, &peer, &format!("OS_GLANCE_CONFIG_DIR={at}"))?;
        listening(&mut daemon, GLANCE)?;
        Ok(Self { daemon, token, answer: dir.join("answer") })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{ADDRESS}:{GLANCE}")
    }

    /// Makes an image of a disk; its id. `properties` are added to its record.
    ///
    /// # Errors
    /// When Glance refuses it.
    pub fn upload(&self, name: &str, disk: &Disk, properties: &Value) -> Result<String> {
        let id = self.create(name, properties)?;
        let token = self.token_header();
        let url = format!("{}/v2/images/{id}/file", self.url());
        let mut curl = command("curl", ["-sS", "--fail-with-body", "-T"]);
        curl.arg(&disk.path).args(["-H", "Content-Type: application/octet-stream", "-H", &token, &url]);
        run(&mut curl).with_context(|| format!("Glance did not take `{name}`"))?;
        Ok(id)
    }

    /// Makes the record of an image that is never uploaded; its id.
    ///
    /// # Errors
    /// When Glance refuses it.
    pub fn create(&self, name: &str, properties: &Value) -> Result<String> {
        let mut record = json!({
            "name": name, "disk_format": "qcow2", "container_format": "bare", "visibility": "public",
        });
        for (key, value) in properties.as_object().into_iter().flatten() {
            record[key] = value.clone();
        }
        let (_head, made) = post(&format!("{}/v2/images", self.url()), &self.token_header(), &record, &self.answer)?;
        Ok(made["id"].as_str().context("an image without an id")?.to_owned())
    }

    fn token_header(&self) -> String {
        format!("X-Auth-Token: {}", self.token.as_deref().unwrap_or_default())
    }
}

impl Keystone {
    /// Starts Keystone, with an endpoint of Glance in its catalog.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start(bed: &Bed) -> Result<Self> {
        let peer = bed.config.peer("python")?;
        let dir = bed.dir.join("keystone");
        fs::create_dir_all(&dir)?;
        run(command("cp", ["-a"]).arg(peer.join("seed/.")).arg(&dir))?;
        let at = dir.display();
        let config = format!(
            "[database]\nconnection = sqlite:///{at}/keystone.sqlite\n[fernet_tokens]\nkey_repository = {at}/fernet\n\
             [fernet_receipts]\nkey_repository = {at}/fernet\n[credential]\nkey_repository = {at}/credential\n\
             [cache]\nenabled = false\n"
        );
        fs::write(dir.join("keystone.conf"), config)?;
        let mut daemon = serve(bed, "keystone", KEYSTONE, &peer, &format!("OS_KEYSTONE_CONFIG_DIR={at}"))?;
        listening(&mut daemon, KEYSTONE)?;
        let answer = dir.join("answer");
        let (token, user) = (String::new(), String::new());
        let mut keystone = Self { daemon, token, user, answer };
        keystone.log_in()?;
        keystone.register()?;
        Ok(keystone)
    }

    /// Where it is, with the version.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{ADDRESS}:{KEYSTONE}/v3")
    }

    /// A new application credential of the administrator.
    ///
    /// # Errors
    /// When Keystone refuses it.
    pub fn application_credential(&self) -> Result<ApplicationCredential> {
        let wanted = json!({"application_credential": {"name": "images"}});
        let made = self.post(&format!("users/{}/application_credentials", self.user), &wanted)?;
        let text = |key: &str| made["application_credential"][key].as_str().map(str::to_owned);
        Ok(ApplicationCredential { id: text("id").context("no id")?, secret: text("secret").context("no secret")? })
    }

    fn log_in(&mut self) -> Result<()> {
        let wanted = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": "admin", "domain": {"id": "default"}, "password": PASSWORD,
            }}},
            "scope": {"project": {"name": "admin", "domain": {"id": "default"}}},
        }});
        let (head, body) = post(&format!("{}/auth/tokens", self.url()), "X-None: 1", &wanted, &self.answer)?;
        let token = head
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case("X-Subject-Token")));
        self.token = token.context("no token")?.1.trim().to_owned();
        self.user = body["token"]["user"]["id"].as_str().context("nobody")?.to_owned();
        Ok(())
    }

    /// Puts Glance into the catalog, and Keystone itself, as Glance looks it up there.
    fn register(&self) -> Result<()> {
        self.post("regions", &json!({"region": {"id": REGION}}))?;
        for (kind, url) in [("image", format!("http://{ADDRESS}:{GLANCE}")), ("identity", self.url())] {
            let service = self.post("services", &json!({"service": {"type": kind, "name": kind}}))?;
            let service = service["service"]["id"].as_str().context("a service without an id")?;
            let endpoint = json!({"interface": "public", "region_id": REGION, "service_id": service, "url": url});
            self.post("endpoints", &json!({"endpoint": endpoint}))?;
        }
        Ok(())
    }

    fn post(&self, path: &str, document: &Value) -> Result<Value> {
        let token = format!("X-Auth-Token: {}", self.token);
        Ok(post(&format!("{}/{path}", self.url()), &token, document, &self.answer)?.1)
    }
}

/// Head and body of the answer.
fn post(url: &str, token: &str, document: &Value, answer: &Path) -> Result<(String, Value)> {
    let mut curl = command("curl", ["-sS", "--fail-with-body", "-D", "-", "-o"]);
    curl.arg(answer).args(["-H", "Content-Type: application/json", "-H", token, "-d", &document.to_string(), url]);
    let head = run(&mut curl);
    let body = fs::read_to_string(answer).unwrap_or_default();
    Ok((head.with_context(|| body.clone())?, serde_json::from_str(&body)?))
}

fn serve(bed: &Bed, name: &str, port: u16, peer: &Path, place: &str) -> Result<Daemon> {
    furnish()?;
    let lib = peer.join("lib");
    let words = [
        format!("PYTHONPATH={}", lib.display()),
        "PYTHONWARNINGS=ignore".to_owned(),
        "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        place.to_owned(),
        "/usr/bin/python3".to_owned(),
        peer.join("serve.py").display().to_string(),
        format!("{name}.wsgi.api"),
        ADDRESS.to_owned(),
        port.to_string(),
    ];
    Daemon::start(name, "/usr/bin/env", words, bed.logs().join(format!("{name}.log")))
}
