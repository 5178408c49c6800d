/* The measure of a hand-off: the least C that opens a tap and passes it.
 *
 *     chandoff SOCKET TAP
 *
 * Runs in the pod's namespace. Answers each packet on SOCKET with one NIC, a queue of TAP and, if the node has it, a
 * descriptor of /dev/vhost-net, as tapmanager does. It asks for no token and looks at no peer. One thread, one peer after
 * the other; it says "ready" once it listens.
 *
 *     gcc -O2 -static -s -o chandoff chandoff.c
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CHECK(call) do { if ((call) < 0) { perror(#call); exit(1); } } while (0)
/* struct virtio_net_hdr_v1 */
#define VNET_HEADER 12

static int open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int header = VNET_HEADER, tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	CHECK(tap);
	CHECK(ioctl(tap, TUNSETIFF, &request));
	CHECK(ioctl(tap, TUNSETVNETHDRSZ, &header));
	return tap;
}

static void answer(int peer, const char *tap)
{
	static char packet[4096];
	int fds[2] = { open_tap(tap), open("/dev/vhost-net", O_RDWR | O_CLOEXEC) }, count = fds[1] < 0 ? 1 : 2;
	union { struct cmsghdr head; char space[CMSG_SPACE(sizeof fds)]; } control = { 0 };
	struct iovec part = { .iov_base = packet };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
	part.iov_len = snprintf(packet, sizeof packet,
		"{\"v\":3,\"fds\":%d,\"body\":{\"ok\":{\"nics\":{\"nics\":[{\"mac\":\"02:00:00:00:00:01\",\"mtu\":1500,\"queues\":1,\"vhost\":%d}]}}}}",
		count, count - 1);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
	CHECK(sendmsg(peer, &message, MSG_NOSIGNAL));
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

int main(int argc, char **argv)
{
	static char request[4096];
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (argc != 3) {
		fputs("usage: chandoff SOCKET TAP\n", stderr);
		return 64;
	}
	CHECK(listener);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address));
	CHECK(chmod(argv[1], 0666));
	CHECK(listen(listener, 16));
	puts("ready");
	fflush(stdout);
	for (;;) {
		int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		CHECK(peer);
		if (recv(peer, request, sizeof request, 0) > 0)
			answer(peer, argv[2]);
		close(peer);
	}
}
