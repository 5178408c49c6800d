//! Rules of a VM that name one of several things, in CEL, with the words of `kubevirt`'s own.
//!
//! Each is an expression for a list of texts, one for each thing that is wrong. `AT` in it stands for the path of the instance's spec, `@DISK` and `@NIC`
//! for that of a disk `d` and of a NIC `n`.
//! What takes more than a policy may reckon with (names of ports that two NICs have, YAML of user-data) is left to the operator.

use kubevirt::Kind;

/// Most bytes of user-data in an object itself.
const MAX_INLINE: usize = 2048;
/// Annotation by which KubeVirt has programs of others change a VM's definition.
const SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";

/// What rules have in common.
pub(super) fn variables(kind: Kind) -> Vec<(String, String)> {
    let (metadata, spec) = match kind {
        Kind::VirtualMachineInstance => ("object.metadata", "object.spec"),
        _ => ("object.spec.template.?metadata.orValue({})", "object.spec.template.spec"),
    };
    [
        ("metadata", metadata),
        ("spec", spec),
        ("disks", "variables.spec.domain.?devices.?disks.orValue([])"),
        ("nics", "variables.spec.domain.?devices.?interfaces.orValue([])"),
        ("volumes", "variables.spec.?volumes.orValue([])"),
        ("networks", "variables.spec.?networks.orValue([])"),
        ("credentials", "variables.spec.?accessCredentials.orValue([])"),
        ("diskNames", "variables.disks.map(d, d.name)"),
        ("nicNames", "variables.nics.map(n, n.name)"),
        ("volumeNames", "variables.volumes.map(v, v.name)"),
        ("networkNames", "variables.networks.map(n, n.name)"),
        ("features", "variables.spec.domain.?cpu.?features.orValue([]).map(f, f.name)"),
        ("requests", "variables.spec.domain.?resources.?requests.orValue({})"),
        ("limits", "variables.spec.domain.?resources.?limits.orValue({})"),
        ("nameservers", "variables.spec.?dnsConfig.?nameservers.orValue([])"),
        ("orders", ORDERS),
        ("addresses", ADDRESSES),
    ]
    .into_iter()
    .map(|(name, is)| (name.to_owned(), at(kind, is)))
    .chain(NAMED.into_iter().map(|(_, name, names, ..)| (name.to_owned(), twins(names))))
    .collect()
}

const DISK: &str = "'AT.domain.devices.disks[' + string(variables.diskNames.indexOf(d.name)) + ']'";
const NIC: &str = "'AT.domain.devices.interfaces[' + string(variables.nicNames.indexOf(n.name)) + ']'";

/// Where there is a boot order, and which.
const ORDERS: &str = "variables.disks.filter(d, has(d.bootOrder)).map(d, {'at': @DISK, 'is': string(d.bootOrder)}) \
     + variables.nics.filter(n, has(n.bootOrder)).map(n, {'at': @NIC, 'is': string(n.bootOrder)})";
/// The same of addresses on the PCI bus.
const ADDRESSES: &str = "variables.disks.filter(d, d.?disk.?pciAddress.orValue('') != '').map(d, {'at': @DISK, 'is': d.disk.pciAddress.lowerAscii()}) \
     + variables.nics.filter(n, n.?pciAddress.orValue('') != '').map(n, {'at': @NIC, 'is': n.pciAddress.lowerAscii()})";

/// Puts in what stands for something else.
fn at(kind: Kind, expression: &str) -> String {
    let path = if kind == Kind::VirtualMachineInstance { "spec" } else { "spec.template.spec" };
    expression.replace("@DISK", DISK).replace("@NIC", NIC).replace("AT.", &format!("{path}."))
}

/// The rules of a kind, by name.
pub(super) fn of(kind: Kind) -> Vec<(&'static str, String)> {
    let named = |(rule, twins, names, list, what)| (rule, first_twin(twins, names, list, what));
    let mut rules: Vec<(&str, String)> = NAMED.into_iter().map(named).collect();
    rules.extend([
        // The seed's own words.
        ("lostDisks", lost("diskNames", "domain.devices.disks", "volumeNames", "spec.volumes")),
        ("lostNics", lost("nicNames", "domain.devices.interfaces", "networkNames", "AT.networks")),
        ("lostNetworks", lost("networkNames", "networks", "nicNames", "AT.domain.devices.interfaces")),
        ("twinOrders", twin_places("orders", "bootOrder")),
        ("twinAddresses", twin_places("addresses", "pciAddress")),
        ("twinMacs", TWIN_MACS.to_owned()),
        ("masquerade", MASQUERADE.to_owned()),
        ("sriov", SRIOV.to_owned()),
        ("overLimits", OVER_LIMITS.to_owned()),
        ("inlineData", inline_data()),
        ("keys", format!("{} + {}", keys("noCloud", "cloudInitNoCloud"), keys("configDrive", "cloudInitConfigDrive"))),
        ("dns", DNS.to_owned()),
        ("sidecars", sidecars(kind)),
    ]);
    match kind {
        // After presets; what a template lacks one may still add.
        Kind::VirtualMachineInstance => rules.push(("memory", MEMORY.to_owned())),
        Kind::ReplicaSet => rules.push(("selected", SELECTED.to_owned())),
        _ => {}
    }
    rules.into_iter().map(|(name, wrong)| (name, at(kind, &wrong))).collect()
}

/// What has names that are its own: the rule, the variable of those that are not, that of all names, where they are, and what they name.
const NAMED: [(&str, &str, &str, &str, &str); 5] = [
    ("sameVolumes", "twinVolumes", "volumeNames", "volumes", "volume"),
    ("sameDisks", "twinDisks", "diskNames", "domain.devices.disks", "disk"),
    ("sameNics", "twinNics", "nicNames", "domain.devices.interfaces", "NIC"),
    ("sameNetworks", "twinNetworks", "networkNames", "networks", "network"),
    ("sameFeatures", "twinFeatures", "features", "domain.cpu.features", "feature"),
];

/// Names that are there more than once.
fn twins(names: &str) -> String {
    let all = format!("variables.{names}");
    format!("{all}.filter(t, {all}.indexOf(t) != {all}.lastIndexOf(t))")
}

/// The first of them, at the last place where it is.
fn first_twin(twins: &str, names: &str, list: &str, what: &str) -> String {
    let twin = format!("variables.{twins}[0]");
    format!(
        "variables.{twins}.size() == 0 ? [] : ['AT.{list}[' + string(variables.{names}.lastIndexOf({twin})) + '].name \"' + {twin} \
         + '\" is the name of another {what}']"
    )
}

/// Names that others do not have. Of one that is there more than once that is told.
fn lost(names: &str, list: &str, others: &str, place: &str) -> String {
    let all = format!("variables.{names}");
    format!(
        "{all}.filter(l, !(l in variables.{others}) && {all}.indexOf(l) == {all}.lastIndexOf(l))\
         .map(l, 'AT.{list}[' + string({all}.indexOf(l)) + '].name \"' + l + '\" not found in {place}')"
    )
}

/// Places that have what a place before has.
fn twin_places(places: &str, field: &str) -> String {
    let all = format!("variables.{places}");
    format!(
        "{all}.filter(p, {all}.filter(q, q.is == p.is)[0].at != p.at)\
         .map(p, p.at + '.{field} ' + p.is + ' is that of ' + {all}.filter(q, q.is == p.is)[0].at + ', too')"
    )
}

const TWIN_MACS: &str = "variables.nics.filter(n, n.?macAddress.orValue('') != '' \
     && variables.nics.exists(m, m.name != n.name && m.?macAddress.orValue('').lowerAscii().replace('-', ':') \
     == n.macAddress.lowerAscii().replace('-', ':'))).map(n, @NIC + '.macAddress ' + n.macAddress + ' is that of another NIC')";

const MASQUERADE: &str = "variables.nics.filter(n, has(n.masquerade) && variables.networks.exists(w, w.name == n.name && !has(w.pod)))\
     .map(n, @NIC + '.masquerade is for the pod\\'s network; use bridge')";

const SRIOV: &str = "variables.nics.filter(n, has(n.sriov) && variables.networks.exists(w, w.name == n.name && !has(w.multus)))\
     .map(n, @NIC + '.sriov is for a network of multus')";

const OVER_LIMITS: &str = "variables.requests.filter(k, k in variables.limits \
     && quantity(string(variables.requests[k])).compareTo(quantity(string(variables.limits[k]))) > 0)\
     .map(k, 'AT.domain.resources.requests.' + k + ' ' + string(variables.requests[k]) + ' is more than the limit of ' \
     + string(variables.limits[k]))";

const DNS: &str = "(variables.nameservers.size() > 3 ? ['AT.dnsConfig.nameservers has more than 3 servers'] : []) \
     + variables.nameservers.filter(s, !isIP(s)).map(s, 'AT.dnsConfig.nameservers[' + string(variables.nameservers.indexOf(s)) + '] is no IP address') \
     + (variables.spec.?dnsPolicy.orValue('') == 'None' && variables.nameservers.size() == 0 \
     ? ['AT.dnsConfig.nameservers is required when dnsPolicy is None'] : [])";

const MEMORY: &str = "variables.spec.domain.?memory.?guest.hasValue() || 'memory' in variables.requests || 'memory' in variables.limits ? [] \
     : ['AT.domain.memory.guest is required, unless resources.requests.memory says how much the guest has']";

const SELECTED: &str = "object.spec.selector.?matchLabels.orValue({})\
     .all(k, variables.metadata.?labels[?k].orValue('') == object.spec.selector.matchLabels[k] && k in variables.metadata.?labels.orValue({})) \
     && object.spec.selector.?matchExpressions.orValue([]).all(e, \
     e.operator == 'In' ? e.key in variables.metadata.?labels.orValue({}) && variables.metadata.labels[e.key] in e.?values.orValue([]) \
     : e.operator == 'NotIn' ? !(e.key in variables.metadata.?labels.orValue({})) || !(variables.metadata.labels[e.key] in e.?values.orValue([])) \
     : e.operator == 'Exists' ? e.key in variables.metadata.?labels.orValue({}) \
     : !(e.key in variables.metadata.?labels.orValue({}))) ? [] \
     : ['spec.template.metadata.labels are not those that spec.selector selects']";

/// Keys of a Secret come with cloud-init's data.
fn keys(way: &str, source: &str) -> String {
    format!(
        "variables.credentials.filter(c, c.?sshPublicKey.?propagationMethod.?{way}.hasValue() && !variables.volumes.exists(v, has(v.{source})))\
         .map(c, 'AT.accessCredentials[' + string(variables.credentials.indexOf(c)) + '].sshPublicKey.propagationMethod.{way} needs a volume {source}')"
    )
}

fn inline_data() -> String {
    let mut rules = Vec::new();
    for source in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
        for (field, secret) in [("userData", "secretRef"), ("networkData", "networkDataSecretRef")] {
            let plain = format!("size(bytes(v.?{source}.?{field}.orValue('')))");
            let base64 = format!("v.?{source}.?{field}Base64.orValue('').size() / 4 * 3");
            for (field, size) in [(field.to_owned(), plain), (format!("{field}Base64"), base64)] {
                rules.push(format!(
                    "variables.volumes.filter(v, {size} > {MAX_INLINE})\
                     .map(v, 'AT.volumes[' + string(variables.volumeNames.indexOf(v.name)) + '].{source}.{field} is longer than {MAX_INLINE} bytes; \
                     put it into a Secret, by {secret}')"
                ));
            }
        }
    }
    rules.join(" + ")
}

fn sidecars(kind: Kind) -> String {
    let place = if kind == Kind::VirtualMachineInstance { "metadata" } else { "spec.template.metadata" };
    format!(
        "'{SIDECARS}' in variables.metadata.?annotations.orValue({{}}) \
         ? ['{place}.annotations.{SIDECARS} not supported: no program of others changes a VM\\'s definition'] : []"
    )
}
