/* vffloor - the least that a claim of a VF and giving it back can cost: sysfs and raw rtnetlink, nothing written down.
 *
 * usage: vffloor VF DRIVER PF NUMBER NETNS NAME
 *   VF      PCI address of the virtual function, whose link is NAME in the namespace file NETNS; DRIVER is its own
 *   PF      link of its physical function, which knows it as NUMBER
 *
 * Claim: read link and settings, set address, spoof check and trust at the PF, bind to vfio-pci.
 * Release: reset, bind to DRIVER, set the three again, move the link back under its name, bring it up, give it its address.
 * Prints {"claim_us": N, "release_us": N}. The link comes back with the IPv4 address 10.60.0.1/24.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "floor.h"

#define DEVICES "/sys/bus/pci/devices"

static char message[4096], reply[65536];

static struct nlmsghdr *begin(int type, int flags, const void *head, size_t len)
{
	struct nlmsghdr *m = (void *)message;
	memset(message, 0, sizeof message);
	m->nlmsg_type = type;
	m->nlmsg_flags = NLM_F_REQUEST | flags;
	m->nlmsg_len = NLMSG_LENGTH(len);
	memcpy(NLMSG_DATA(m), head, len);
	return m;
}

/* The answer: an acknowledgement, or a link. */
static struct nlmsghdr *ask(int sock, struct nlmsghdr *m)
{
	CHECK(send(sock, m, m->nlmsg_len, 0));
	CHECK(recv(sock, reply, sizeof reply, 0));
	struct nlmsghdr *a = (void *)reply;
	if (a->nlmsg_type == NLMSG_ERROR) {
		errno = -((struct nlmsgerr *)NLMSG_DATA(a))->error;
		CHECK(errno ? -1 : 0);
	}
	return a;
}

static void read_link(int sock, int index)
{
	struct ifinfomsg i = { .ifi_index = index };
	unsigned mask = RTEXT_FILTER_VF;
	struct nlmsghdr *m = begin(RTM_GETLINK, 0, &i, sizeof i);
	put(m, IFLA_EXT_MASK, &mask, sizeof mask);
	ask(sock, m);
}

/* The address of a link that is to be kept. */
static void mac_of(int sock, int index, unsigned char mac[6])
{
	struct ifinfomsg i = { .ifi_index = index };
	struct nlmsghdr *m = ask(sock, begin(RTM_GETLINK, 0, &i, sizeof i));
	int len = (int)IFLA_PAYLOAD(m);
	for (struct rtattr *a = IFLA_RTA(NLMSG_DATA(m)); RTA_OK(a, len); a = RTA_NEXT(a, len))
		if (a->rta_type == IFLA_ADDRESS)
			memcpy(mac, RTA_DATA(a), 6);
}

static void set_vf(int sock, int pf, int type, const void *data, size_t len)
{
	struct ifinfomsg i = { .ifi_index = pf };
	struct nlmsghdr *m = begin(RTM_SETLINK, NLM_F_ACK, &i, sizeof i);
	struct rtattr *list = put(m, IFLA_VFINFO_LIST, NULL, 0), *info = put(m, IFLA_VF_INFO, NULL, 0);
	put(m, type, data, len);
	close_nest(m, info);
	close_nest(m, list);
	ask(sock, m);
}

static void set_up(int sock, int pf, unsigned vf, const unsigned char mac[6], unsigned spoofchk, unsigned trust)
{
	struct ifla_vf_mac address = { .vf = vf };
	memcpy(address.mac, mac, 6);
	struct ifla_vf_spoofchk check = { .vf = vf, .setting = spoofchk };
	struct ifla_vf_trust trusted = { .vf = vf, .setting = trust };
	set_vf(sock, pf, IFLA_VF_MAC, &address, sizeof address);
	set_vf(sock, pf, IFLA_VF_SPOOFCHK, &check, sizeof check);
	set_vf(sock, pf, IFLA_VF_TRUST, &trusted, sizeof trusted);
}

static void write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd);
	CHECK(write(fd, text, strlen(text)));
	close(fd);
}

static void write_of(const char *vf, const char *file, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, DEVICES "/%s/%s", vf, file);
	write_to(path, text);
}

static void bind_to(const char *vf, const char *driver)
{
	write_of(vf, "driver_override", driver);
	write_of(vf, "driver/unbind", vf);
	write_to("/sys/bus/pci/drivers_probe", vf);
}

static int link_of(const char *vf)
{
	char path[256];
	snprintf(path, sizeof path, DEVICES "/%s/net", vf);
	DIR *dir = opendir(path);
	CHECK(dir ? 0 : -1);
	int index = 0;
	for (struct dirent *e; !index && (e = readdir(dir));)
		if (e->d_name[0] != '.')
			index = (int)if_nametoindex(e->d_name);
	closedir(dir);
	CHECK(index ? 0 : -1);
	return index;
}

static void move_back(int sock, int index, int netns, const char *name)
{
	struct ifinfomsg i = { .ifi_index = index };
	struct nlmsghdr *m = begin(RTM_SETLINK, NLM_F_ACK, &i, sizeof i);
	put(m, IFLA_NET_NS_FD, &netns, sizeof netns);
	put(m, IFLA_IFNAME, name, strlen(name) + 1);
	ask(sock, m);
}

static void dress(int sock, const char *name)
{
	struct ifinfomsg i = { .ifi_index = (int)if_nametoindex(name), .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	ask(sock, begin(RTM_SETLINK, NLM_F_ACK, &i, sizeof i));
	struct ifaddrmsg a = { .ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = (unsigned)i.ifi_index };
	struct in_addr own;
	inet_pton(AF_INET, "10.60.0.1", &own);
	struct nlmsghdr *m = begin(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &a, sizeof a);
	put(m, IFA_LOCAL, &own, sizeof own);
	put(m, IFA_ADDRESS, &own, sizeof own);
	ask(sock, m);
}

static int netlink(void)
{
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	CHECK(sock);
	return sock;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: vffloor VF DRIVER PF NUMBER NETNS NAME\n");
		return 2;
	}
	const char *vf = argv[1], *driver = argv[2], *name = argv[6];
	unsigned number = (unsigned)atoi(argv[4]);
	int pf = (int)if_nametoindex(argv[3]), pod = open(argv[5], O_RDONLY | O_CLOEXEC);
	int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), sock = netlink();
	CHECK(pod);
	CHECK(host);
	CHECK(setns(pod, CLONE_NEWNET));
	int inside = netlink();
	double begun = now();
	unsigned char mac[6] = { 0 };
	mac_of(inside, (int)if_nametoindex(name), mac);
	CHECK(setns(host, CLONE_NEWNET));
	read_link(sock, pf);
	set_up(sock, pf, number, mac, 1, 0);
	read_link(sock, pf);
	bind_to(vf, "vfio-pci");
	double claimed = now();

	write_of(vf, "reset", "1");
	set_up(sock, pf, number, mac, 1, 0);
	bind_to(vf, driver);
	write_of(vf, "driver_override", "\n");
	move_back(sock, link_of(vf), pod, name);
	CHECK(setns(pod, CLONE_NEWNET));
	dress(inside, name);
	CHECK(setns(host, CLONE_NEWNET));
	read_link(sock, pf);
	printf("{\"claim_us\": %.0f, \"release_us\": %.0f}\n", claimed - begun, now() - claimed);
	return 0;
}
