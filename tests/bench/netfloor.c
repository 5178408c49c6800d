/* netfloor - the least that the network of one pod can cost: raw rtnetlink, one process, nothing written down.
 *
 * usage: netfloor N
 *
 * Builds and takes down, N times, the layout that tapmanager leaves behind a bridge plugin:
 *   netns (bind-mounted), lo up, veth with its host end on a bridge, address and default route on the pod's end,
 *   persistent tap, clsact on both, on each a dropping cls_bpf filter and a match-all one that redirects to the other, up.
 * Taking down is what must be done in order before the rest may be left to the kernel: clsact off the veth, umount, unlink.
 * Prints {"create_us": p50, "delete_us": p50}. Run it in network and mount namespaces of its own.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_mirred.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "floor.h"

static char queue[65536];
static size_t queued;
static unsigned sequence;

/* --- messages: queued, sent together, the last one acknowledged --- */

static struct nlmsghdr *begin(int type, int flags, const void *head, size_t len)
{
	struct nlmsghdr *m = (void *)(queue + queued);
	memset(m, 0, NLMSG_SPACE(len));
	m->nlmsg_type = type;
	m->nlmsg_flags = NLM_F_REQUEST | flags;
	m->nlmsg_seq = ++sequence;
	m->nlmsg_len = NLMSG_LENGTH(len);
	memcpy(NLMSG_DATA(m), head, len);
	return m;
}

static void put_string(struct nlmsghdr *m, int type, const char *text) { put(m, type, text, strlen(text) + 1); }
static void put_number(struct nlmsghdr *m, int type, unsigned number) { put(m, type, &number, sizeof number); }
static void end(struct nlmsghdr *m) { queued += NLMSG_ALIGN(m->nlmsg_len); }

static void send_all(int sock)
{
	static char reply[65536];
	struct nlmsghdr *last = NULL;
	int left = (int)queued;
	for (struct nlmsghdr *m = (void *)queue; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left))
		last = m;
	last->nlmsg_flags |= NLM_F_ACK;
	CHECK(send(sock, queue, queued, 0));
	queued = 0;
	for (;;) {
		int len = (int)recv(sock, reply, sizeof reply, 0);
		CHECK(len);
		for (struct nlmsghdr *m = (void *)reply; NLMSG_OK(m, len); m = NLMSG_NEXT(m, len)) {
			if (m->nlmsg_type != NLMSG_ERROR)
				continue;
			errno = -((struct nlmsgerr *)NLMSG_DATA(m))->error;
			CHECK(errno ? -1 : 0);
			if (m->nlmsg_seq == sequence)
				return;
		}
	}
}

static int netlink(void)
{
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	CHECK(sock);
	return sock;
}

/* --- links, addresses, routes --- */

static void link_up(int index)
{
	struct ifinfomsg i = { .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	end(begin(RTM_NEWLINK, 0, &i, sizeof i));
}

static void add_bridge(const char *name)
{
	struct ifinfomsg i = { .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	struct nlmsghdr *m = begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
	put_string(m, IFLA_IFNAME, name);
	struct rtattr *info = put(m, IFLA_LINKINFO, NULL, 0);
	put_string(m, IFLA_INFO_KIND, "bridge");
	close_nest(m, info);
	end(m);
}

static void add_veth(const char *name, const char *peer, int netns, int bridge)
{
	struct ifinfomsg i = { .ifi_flags = IFF_UP, .ifi_change = IFF_UP }, inner = { 0 };
	struct nlmsghdr *m = begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
	put_string(m, IFLA_IFNAME, name);
	put_number(m, IFLA_MASTER, bridge);
	struct rtattr *info = put(m, IFLA_LINKINFO, NULL, 0);
	put_string(m, IFLA_INFO_KIND, "veth");
	struct rtattr *data = put(m, IFLA_INFO_DATA, NULL, 0);
	struct rtattr *end_of_pod = put(m, VETH_INFO_PEER, &inner, sizeof inner);
	put_string(m, IFLA_IFNAME, peer);
	put_number(m, IFLA_NET_NS_FD, netns);
	close_nest(m, end_of_pod);
	close_nest(m, data);
	close_nest(m, info);
	end(m);
}

static void add_address(int index, const char *ip)
{
	struct ifaddrmsg a = { .ifa_family = AF_INET, .ifa_prefixlen = 16, .ifa_index = index };
	struct nlmsghdr *m = begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &a, sizeof a);
	struct in_addr raw;
	inet_pton(AF_INET, ip, &raw);
	put(m, IFA_LOCAL, &raw, sizeof raw);
	put(m, IFA_ADDRESS, &raw, sizeof raw);
	end(m);
}

static void add_default_route(int index, const char *gateway)
{
	struct rtmsg r = { .rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT,
		.rtm_scope = RT_SCOPE_UNIVERSE, .rtm_type = RTN_UNICAST };
	struct nlmsghdr *m = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &r, sizeof r);
	struct in_addr raw;
	inet_pton(AF_INET, gateway, &raw);
	put(m, RTA_GATEWAY, &raw, sizeof raw);
	put_number(m, RTA_OIF, index);
	end(m);
}

/* --- tc --- */

static void clsact(int index, int type, int flags)
{
	struct tcmsg t = { .tcm_family = AF_UNSPEC, .tcm_ifindex = index, .tcm_handle = TC_H_MAKE(TC_H_CLSACT, 0), .tcm_parent = TC_H_CLSACT };
	struct nlmsghdr *m = begin(type, flags, &t, sizeof t);
	put_string(m, TCA_KIND, "clsact");
	end(m);
}

/* ingress filter of one program; with `other` its frames are redirected there, else the program's verdict counts */
static void filter(int index, int preference, const struct sock_filter *program, unsigned len, int other)
{
	struct tcmsg t = { .tcm_family = AF_UNSPEC, .tcm_ifindex = index, .tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS),
		.tcm_info = TC_H_MAKE(preference << 16, htons(ETH_P_ALL)) };
	struct nlmsghdr *m = begin(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, &t, sizeof t);
	unsigned short count = (unsigned short)len;
	put_string(m, TCA_KIND, "bpf");
	struct rtattr *options = put(m, TCA_OPTIONS, NULL, 0);
	put(m, TCA_BPF_OPS_LEN, &count, sizeof count);
	put(m, TCA_BPF_OPS, program, len * sizeof *program);
	if (other) {
		struct tc_mirred redirect = { .action = TC_ACT_STOLEN, .eaction = TCA_EGRESS_REDIR, .ifindex = (unsigned)other };
		put_number(m, TCA_BPF_CLASSID, TC_H_MAKE(1 << 16, 1));
		struct rtattr *actions = put(m, TCA_BPF_ACT, NULL, 0), *first = put(m, 1, NULL, 0);
		put_string(m, TCA_ACT_KIND, "mirred");
		struct rtattr *action = put(m, TCA_ACT_OPTIONS, NULL, 0);
		put(m, TCA_MIRRED_PARMS, &redirect, sizeof redirect);
		close_nest(m, action);
		close_nest(m, first);
		close_nest(m, actions);
	} else {
		put_number(m, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
	}
	close_nest(m, options);
	end(m);
}

static void join(int index, int other)
{
	/* UDP to a DHCP server is dropped, the rest goes on to the next filter */
	static const struct sock_filter drop_dhcp[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 6),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 4),
		BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14), BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 67, 0, 1), BPF_STMT(BPF_RET | BPF_K, TC_ACT_SHOT),
		BPF_STMT(BPF_RET | BPF_K, (unsigned)TC_ACT_UNSPEC),
	};
	static const struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, 0xffffffff) };
	clsact(index, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL);
	filter(index, 1, drop_dhcp, sizeof drop_dhcp / sizeof *drop_dhcp, 0);
	filter(index, 10, all, 1, other);
}

/* --- one pod --- */

static int home, home_netlink, bridge;

static void make_tap(void)
{
	struct ifreq request = { .ifr_name = "tap0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	CHECK(tun);
	CHECK(ioctl(tun, TUNSETIFF, &request));
	CHECK(ioctl(tun, TUNSETPERSIST, 1));
	close(tun);
}

static void create(const char *path, int n, int *inside_netlink, int *veth)
{
	char name[16], ip[16];
	CHECK(unshare(CLONE_NEWNET));
	int file = open(path, O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	CHECK(file);
	close(file);
	CHECK(mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL));
	int netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(netns);
	*inside_netlink = netlink();

	snprintf(name, sizeof name, "nf%d", n);
	add_veth(name, "eth0", netns, bridge);
	send_all(home_netlink);

	*veth = (int)if_nametoindex("eth0");
	snprintf(ip, sizeof ip, "10.77.%d.%d", 1 + n / 250, 1 + n % 250);
	make_tap();
	int tap = (int)if_nametoindex("tap0");
	link_up(1);
	link_up(*veth);
	add_address(*veth, ip);
	add_default_route(*veth, "10.77.0.1");
	join(*veth, tap);
	join(tap, *veth);
	link_up(tap);
	send_all(*inside_netlink);
	close(netns);
	CHECK(setns(home, CLONE_NEWNET));
}

static void take_down(const char *path, int inside_netlink, int veth)
{
	clsact(veth, RTM_DELQDISC, 0);
	send_all(inside_netlink);
	close(inside_netlink);
	CHECK(umount2(path, MNT_DETACH));
	CHECK(unlink(path));
}

static double micros(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int n = argc == 2 ? atoi(argv[1]) : 0;
	if (n < 1 || n > 1000) {
		fputs("usage: netfloor N, with N from 1 to 1000\n", stderr);
		return 64;
	}
	double *creates = calloc((size_t)n, sizeof *creates), *deletes = calloc((size_t)n, sizeof *deletes);
	mkdir("/run/netns", 0755);
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(home);
	home_netlink = netlink();
	add_bridge("nfbr0");
	send_all(home_netlink);
	bridge = (int)if_nametoindex("nfbr0");
	for (int i = 0; i < n; i++) {
		char path[64];
		int sock, veth;
		snprintf(path, sizeof path, "/run/netns/netfloor-%d", i);
		double start = micros();
		create(path, i, &sock, &veth);
		double made = micros();
		take_down(path, sock, veth);
		creates[i] = made - start;
		deletes[i] = micros() - made;
	}
	qsort(creates, (size_t)n, sizeof *creates, ascending);
	qsort(deletes, (size_t)n, sizeof *deletes, ascending);
	printf("{\"create_us\": %.0f, \"delete_us\": %.0f}\n", creates[n / 2], deletes[n / 2]);
	return 0;
}
