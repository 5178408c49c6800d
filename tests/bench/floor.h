/* What the floors share: attributes of netlink messages. */
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) do { if ((call) < 0) { perror(#call); exit(1); } } while (0)

static struct rtattr *put(struct nlmsghdr *m, int type, const void *data, size_t len)
{
	struct rtattr *a = (void *)((char *)m + NLMSG_ALIGN(m->nlmsg_len));
	a->rta_type = type;
	a->rta_len = RTA_LENGTH(len);
	if (len)
		memcpy(RTA_DATA(a), data, len);
	m->nlmsg_len = NLMSG_ALIGN(m->nlmsg_len) + RTA_ALIGN(a->rta_len);
	return a;
}

static void close_nest(struct nlmsghdr *m, struct rtattr *a) { a->rta_len = (char *)m + NLMSG_ALIGN(m->nlmsg_len) - (char *)a; }
