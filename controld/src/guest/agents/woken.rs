//! What a guest that goes on from a checkpoint is told by an agent in it, if there is one: the time, and where it goes on as another pod, that it is
//! another machine. Its kernel learns by the id of its machine's generation that it was copied, its NICs by their carriers; nobody else does.

use std::time::Duration;

use common::now_nanos;
use proto::agent::Start;
use proto::tap::MacAddr;
use uuid::Uuid;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::{Agents, Command};

/// How long an agent may take to answer that has just gone on.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may work: keys of SSH are made.
const LIMIT: Duration = Duration::from_secs(60);
/// How the script ends without an address or a NIC, and where the kernel goes on with random numbers that others have.
const NO_ADDRESS: i32 = 1;
const NO_RANDOM: i32 = 4;
/// Longest host name (hostname(7)).
const MAX_NAME: usize = 64;

/// The parts of a script, in the order of [`to_be_another`]. `$1` is the time, in seconds since the epoch; `$2` the host name of another pod,
/// or empty for the same; `$3` is random, and nobody else's. What a guest lacks it does without.
const CLOCK: &str = r#"
date -u -s "@$1" >/dev/null 2>&1"#;

/// The kernel's random numbers go on from the checkpoint's for up to a minute, whatever is written to the device: all that is drawn here, too.
/// One with a driver for the generation's id begins anew by itself; Debian 12's for clouds has none. It takes an ioctl (`RNDRESEEDCRNG`).
const RANDOM: &str = r#"
echo "$3" >/dev/urandom
{
	case $(readlink "/proc/$PPID/exe") in
	*/virtlet-agent*) "/proc/$PPID/exe" reseed ;;
	*) false ;;
	esac || perl -e 'open F, ">/dev/urandom" and ioctl F, 0x5207, 0 or exit 1' ||
		python3 -c 'import fcntl; fcntl.ioctl(open("/dev/urandom", "w"), 0x5207)'
} >/dev/null 2>&1"#;

/// DHCP clients should ask anew when a carrier was away (RFC 2131, section 3.7). Two do not, those of BusyBox and of ISC, and go on with the
/// first pod's address until half of its lease is over at least.
const DHCP: &str = r#"
for pid in $(pidof udhcpc); do
	kill -USR2 "$pid" || continue
	# Of two signals that wait the lower one may come first, and one that has let its address go then asks for none.
	n=0
	while [ $n -lt 100 ] && grep -q '^ShdPnd:.*[89a-f]..$' "/proc/$pid/status"; do n=$((n + 1)); done
	kill -USR1 "$pid"
	# One that has an address by then asks for it once more.
	{ sleep 1; kill -USR1 "$pid"; } >/dev/null 2>&1 &
done
for pid in $(pidof dhclient); do
	# Another's child, or one that stays in the foreground, is for others to start again.
	grep -q '^PPid:.1$' "/proc/$pid/status" && ! tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qx -e -d || continue
	exe=$(readlink "/proc/$pid/exe") && [ -x "$exe" ] || continue
	# In the cgroup where it was, or it would end with the agent's.
	xargs -0 sh -c 'pid=$1 exe=$2; shift 3
		echo $$ >"/sys/fs/cgroup$(sed -n s/^0:://p "/proc/$pid/cgroup")/cgroup.procs"
		kill "$pid"; n=0
		while kill -0 "$pid" && [ $n -lt 10 ]; do sleep 1; n=$((n + 1)); done
		exec "$exe" -nw "$@"' sh "$pid" "$exe" <"/proc/$pid/cmdline" >/dev/null 2>&1 &
done"#;

/// Who it is, once what is random is.
const IDENTITY: &str = r#"
[ -n "$2" ] || { wait; exit 0; }
echo "$2" >/etc/hostname 2>/dev/null
hostname "$2" 2>/dev/null || echo "$2" >/proc/sys/kernel/hostname
if [ -e /etc/machine-id ] && read -r id </proc/sys/kernel/random/uuid; then
	echo "$id" | tr -d - >/etc/machine-id
	[ ! -f /var/lib/dbus/machine-id ] || [ -L /var/lib/dbus/machine-id ] || cp /etc/machine-id /var/lib/dbus/machine-id
fi
for key in /etc/ssh/ssh_host_*_key; do
	# Without it there would be no keys, and nobody could log in.
	[ -e "$key" ] && command -v ssh-keygen >/dev/null || break
	rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
	ssh-keygen -A >/dev/null 2>&1
	systemctl try-restart ssh.service sshd.service >/dev/null 2>&1
	break
done
wait
exit 0"#;

/// Pairs of MAC addresses: one by which the guest knows a NIC, and the one that it is to have. Again is fine. With `$anew` nothing uses the NICs yet.
///
/// A driver keeps the address that it has found first as the permanent one, and netplan names NICs by that: so it begins anew, with what the device has
/// now. Of some devices that is the old one still.
const ADDRESSES: &str = r#"
while [ $# -ge 2 ]; do
	has=
	for dev in /sys/class/net/*; do
		[ -e "$dev/device" ] && read -r is <"$dev/address" || continue
		[ "$is" != "$2" ] || { has=1; break; }
		[ "$is" = "$1" ] || continue
		nic=${dev##*/}
		if [ -n "$anew" ]; then
			of=$(readlink -f "$dev/device") by=$(readlink -f "$dev/device/driver")
			echo "${of##*/}" >"$by/unbind" && echo "${of##*/}" >"$by/bind"
			! grep -qx "$2" /sys/class/net/*/address || { has=1; break; }
		fi 2>/dev/null
		ip link set dev "$nic" address "$2" 2>/dev/null || {
			ip link set dev "$nic" down && ip link set dev "$nic" address "$2" && ip link set dev "$nic" up || exit 1
		}
		has=1
		break
	done
	[ -n "$has" ] || exit 1
	shift 2
done"#;

impl Agents {
    /// Has a guest learn which addresses its NICs have now, in place of those by which it knows them.
    ///
    /// # Errors
    /// When no agent answers in the guest, or it does not do that.
    pub async fn learn(&self, id: MachineId, learns: &[(MacAddr, MacAddr)]) -> Result<()> {
        let words = ["/bin/sh", "-c", ADDRESSES, "sh"].map(str::to_owned);
        let start = Start { argv: words.into_iter().chain(pairs(learns)).collect(), ..Start::default() };
        let command = Command { machine: id, start, patience: PATIENCE, has_agent: true };
        let what = "the guest has not learned the MAC addresses that its networks have given its NICs";
        match self.run(command, Some(LIMIT)).await {
            Ok(output) if output.code == 0 => Ok(()),
            Ok(output) => Err(Error::new(Kind::State, format!("{what}: `ip link` in it ended with {}", output.code))),
            Err(cause) => Err(Error::because(cause.kind(), what, cause)),
        }
    }

    /// Has a guest that goes on at the gate learn all that makes it another machine: the addresses of its NICs, the time, and this host name.
    ///
    /// # Errors
    /// When its agent does not say that it waits there, or it does not do that.
    pub async fn woken_at_gate(&self, id: MachineId, learns: &[(MacAddr, MacAddr)], name: &str) -> Result<()> {
        has_name(name)?;
        let what = "the guest has not become another machine at the gate";
        match self.gate(id).run(|| at_gate(learns, name), LIMIT).await {
            Ok(output) if output.code == 0 => Ok(()),
            Ok(output) => Err(Error::new(
                Kind::State,
                format!(
                    "{what}: its script ended with {} ({NO_ADDRESS}: a MAC address, {NO_RANDOM}: its random numbers)",
                    output.code
                ),
            )),
            Err(cause) => Err(Error::because(cause.kind(), what, cause)),
        }
    }

    /// Tells a guest, that goes on as a pod with another host name if one is given, what it cannot see.
    ///
    /// # Errors
    /// When no agent answers in the guest, or it does not come to an end.
    pub async fn woken(&self, id: MachineId, name: Option<&str>) -> Result<()> {
        let name = name.unwrap_or_default();
        has_name(name)?;
        let command = |argv: Vec<String>| Command {
            machine: id,
            start: Start { argv, ..Start::default() },
            patience: PATIENCE,
            has_agent: false,
        };
        // Once it answers: the time is to be that of then.
        self.run(command(["/bin/sh", "-c", "exit 0"].map(str::to_owned).into()), Some(LIMIT)).await?;
        self.run(command(to_be_another(name)), Some(LIMIT)).await.map(drop)
    }
}

/// As the script of addresses takes them.
fn pairs(learns: &[(MacAddr, MacAddr)]) -> impl Iterator<Item = String> {
    learns.iter().flat_map(|(had, given)| [had.to_string(), given.to_string()])
}

/// The command for a guest that runs.
fn to_be_another(name: &str) -> Vec<String> {
    with_words([CLOCK, DHCP, RANDOM, IDENTITY].concat(), name)
}

/// And for one that has no address yet, which learns those of its NICs by the way: a shell less.
fn at_gate(learns: &[(MacAddr, MacAddr)], name: &str) -> Vec<String> {
    let taken = "now=$1 name=$2 random=$3 anew=1\nshift 3";
    let given = "\nset -- \"$now\" \"$name\" \"$random\"";
    let reseeded = format!("\n[ $? = 0 ] || exit {NO_RANDOM}");
    let script = [taken, ADDRESSES, given, CLOCK, RANDOM, &reseeded, IDENTITY].concat();
    with_words(script, name).into_iter().chain(pairs(learns)).collect()
}

/// A script with the time of now.
fn with_words(script: String, name: &str) -> Vec<String> {
    let now = (now_nanos() / 1_000_000_000).to_string();
    let random = [Uuid::new_v4(), Uuid::new_v4()].map(|half| half.simple().to_string()).concat();
    ["/bin/sh".into(), "-c".into(), script, "sh".into(), now, name.to_owned(), random].into()
}

fn has_name(name: &str) -> Result<()> {
    if name.len() > MAX_NAME || name.chars().any(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))) {
        return Err(Error::new(Kind::Invalid, "the pod's host name is none of a guest"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    fn whole() -> String {
        to_be_another("")[2].clone()
    }

    /// The words that name the NICs are those behind the others.
    #[test]
    fn at_the_gate_a_nic_that_is_not_there_is_missed_and_none_is_none() {
        let run = |learns: &[(MacAddr, MacAddr)], random: &str| {
            let mut words = at_gate(learns, "");
            // Nothing is to be done to this machine.
            words[2] = words[2].replace("date -u", "true").replace(RANDOM, random);
            Process::new(&words[0]).args(&words[1..]).status().expect("run").code()
        };
        let address = |text: &str| text.parse::<MacAddr>().expect("an address");
        assert_eq!(run(&[], "\ntrue"), Some(0));
        assert_eq!(run(&[], "\nfalse"), Some(NO_RANDOM));
        assert_eq!(run(&[(address("02:00:00:00:0f:f1"), address("02:00:00:00:0f:f2"))], "\ntrue"), Some(NO_ADDRESS));
    }

    #[test]
    fn the_script_is_one_of_any_shell_and_leaves_the_same_pod_alone() {
        let script = whole();
        for script in [&*script, ADDRESSES, &at_gate(&[], "vm")[2]] {
            let shell = Process::new("sh").args(["-n", "-c", script]).status().expect("run");
            assert!(shell.success(), "{script}");
        }
        let (before, after) = script.split_once(r#"[ -n "$2" ] || "#).expect("the same pod ends there");
        assert!(!before.contains("machine-id") && after.contains("machine-id") && after.contains("ssh_host"));
    }

    /// As a guest of Debian with QEMU's agent does it, and one with ours by that.
    #[test]
    fn the_kernels_generator_begins_anew_before_anything_is_drawn() {
        let script = whole();
        let reseeds = script.find("reseed").expect("said");
        for drawn in ["/proc/sys/kernel/random/uuid", "ssh-keygen -A"] {
            assert!(reseeds < script.find(drawn).expect("drawn"), "{drawn}");
        }
        let perl = script.split_once("perl -e '").expect("by perl").1.split_once('\'').expect("its end").0;
        let compiled = Process::new("perl").args(["-c", "-e", perl]).output().expect("run");
        assert!(compiled.status.success(), "{compiled:?}");
    }

    #[test]
    fn keys_stay_where_none_can_be_made() {
        let looks = IDENTITY.find("command -v ssh-keygen").expect("looked for");
        assert!(looks < IDENTITY.find("rm -f /etc/ssh").expect("removed"));
    }

    #[test]
    fn a_guest_that_has_no_such_nic_says_so() {
        let learn =
            |words: &[&str]| Process::new("sh").args(["-c", ADDRESSES, "sh"]).args(words).status().expect("run");
        assert!(learn(&[]).success());
        assert!(!learn(&["02:00:00:00:0f:f1", "02:00:00:00:0f:f2"]).success());
    }

    #[tokio::test]
    async fn a_name_that_is_none_is_not_said() {
        let agents = Agents::new("/nowhere".into());
        for name in ["a b", "a'b", "$(x)", &"a".repeat(65)] {
            let refused = agents.woken(MachineId::random(), Some(name)).await.expect_err(name);
            assert_eq!(refused.kind(), Kind::Invalid);
        }
    }
}
