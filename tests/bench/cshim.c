/* The measure of vmwrapper: the least C that does the same work against the same server.
 *
 * Asks tapmanager's hand-off socket for the pod's descriptors, appends QEMU's arguments, hides its variables, becomes
 * the emulator. Static, one pass, no library but libc. It is only a measure: it trusts its environment and the
 * server's JSON, one NIC after the other, fields in the order in which tapmanager writes them.
 *
 *     gcc -O2 -static -s -o cshim cshim.c
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_FDS 253
#define MAX_MESSAGE 212992

static int failed(const char *what)
{
    fprintf(stderr, "cshim[69]: %s: %s\n", what, strerror(errno));
    return 69;
}

/* Sends the token, and receives the answer into `answer` and its descriptors into `fds`. Their count, or -1. */
static int fetch(const char *path, const char *token, char *answer, int *fds)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timeval deadline = { .tv_sec = 10 };
    union { struct cmsghdr head; char space[CMSG_SPACE(MAX_FDS * sizeof(int))]; } control;
    struct iovec part = { .iov_base = answer, .iov_len = MAX_MESSAGE };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    char request[128];
    int length = snprintf(request, sizeof request, "{\"v\":3,\"body\":{\"get\":{\"token\":\"%s\"}}}", token);
    int count = 0, server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (server < 0 || setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline) ||
        setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline) ||
        connect(server, (struct sockaddr *)&address, sizeof address) ||
        send(server, request, length, MSG_NOSIGNAL) != length)
        return -1;
    ssize_t got = recvmsg(server, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return -1;
    answer[got] = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(fds, CMSG_DATA(c), count * sizeof(int));
        }
    close(server);
    return count;
}

/* The `-netdev` of one NIC, whose queues are the first of `fds`. */
static char *netdev(int nic, const int *fds, int queues)
{
    char *text = malloc(64 + 12 * queues);
    int at = sprintf(text, "tap,id=vw%d,%s=", nic, queues == 1 ? "fd" : "fds");
    for (int i = 0; i < queues; i++)
        at += sprintf(text + at, i ? ":%d" : "%d", fds[i]);
    strcpy(text + at, ",vhost=off");
    return text;
}

/* The `-device` of one NIC. */
static char *device(int nic, const char *mac, unsigned mtu, int queues, const char *slot)
{
    char *text = malloc(256), mq[48] = "";
    if (queues > 1)
        snprintf(mq, sizeof mq, ",\"mq\":true,\"vectors\":%d", 2 * queues + 2);
    snprintf(text, 256,
             "{\"driver\":\"virtio-net-pci\",\"netdev\":\"vw%d\",\"id\":\"vwnet%d\",\"mac\":\"%s\",\"host_mtu\":%u%s,"
             "\"bus\":\"pcie.0\",\"addr\":\"%.4s\"}", nic, nic, mac, mtu, mq, slot);
    return text;
}

int main(int argc, char **argv)
{
    static char answer[MAX_MESSAGE + 1];
    static const char *ours[] = { "VIRTLET_HANDOFF", "VIRTLET_TOKEN", "VIRTLET_EMULATOR", "VIRTLET_NICS", "VIRTLET_DEADLINE_MS" };
    int fds[MAX_FDS], used = 0, nic = 0;
    char *emulator = getenv("VIRTLET_EMULATOR"), *slot = getenv("VIRTLET_NICS");
    int count = fetch(getenv("VIRTLET_HANDOFF"), getenv("VIRTLET_TOKEN"), answer, fds);
    if (count < 0)
        return failed("hand-off");

    char **args = malloc((argc + 4 * count + 1) * sizeof *args);
    int n = argc;
    memcpy(args, argv, argc * sizeof *args);
    args[0] = emulator;
    for (char *at = answer; (at = strstr(at, "{\"mac\":\"")); nic++, slot += 5) {
        char mac[18];
        unsigned mtu;
        int queues;
        if (sscanf(at, "{\"mac\":\"%17[^\"]\",\"mtu\":%u,\"queues\":%d", mac, &mtu, &queues) != 3 || used + queues > count)
            return 76;
        args[n++] = "-netdev";
        args[n++] = netdev(nic, fds + used, queues);
        args[n++] = "-device";
        args[n++] = device(nic, mac, mtu, queues, slot);
        used += queues;
        at++;
    }
    args[n] = NULL;
    for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++)
        unsetenv(ours[i]);
    for (int i = 0; i < used; i++)
        fcntl(fds[i], F_SETFD, 0);
    execv(emulator, args);
    failed(emulator);
    return 71;
}
