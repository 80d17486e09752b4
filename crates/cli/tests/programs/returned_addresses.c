/*
 * Asks for addresses of sockets with buffers of different sizes, and prints for each call what it
 * got, as `print --calls` should show it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un local;
	struct sockaddr_storage storage;
};

static void show_local(const union address *from, socklen_t room, socklen_t size)
{
	socklen_t there = room < size ? room : size;
	int bytes = (int)there - (int)offsetof(struct sockaddr_un, sun_path);
	const char *path = from->local.sun_path;
	if (bytes <= 0)
		printf("{AF_UNIX}");
	else if (path[0] == 0)
		printf("{AF_UNIX, @\"%.*s\"%s}", bytes - 1, path + 1, room < size ? "..." : "");
	else
		printf("{AF_UNIX, \"%.*s\"%s}", bytes, path, room < size ? "..." : "");
}

static void show(const char *call, const union address *from, socklen_t room, socklen_t size)
{
	char text[INET6_ADDRSTRLEN];
	printf("%s ", call);
	switch (from->any.sa_family) {
	case AF_INET:
		if (room < 8)
			printf("{AF_INET, ...}");
		else
			printf("{AF_INET, %s:%d}", inet_ntop(AF_INET, &from->v4.sin_addr, text, sizeof text),
			       ntohs(from->v4.sin_port));
		break;
	case AF_INET6:
		if (room < 24)
			printf("{AF_INET6, ...}");
		else
			printf("{AF_INET6, [%s]:%d}", inet_ntop(AF_INET6, &from->v6.sin6_addr, text, sizeof text),
			       ntohs(from->v6.sin6_port));
		break;
	default:
		show_local(from, room, size);
	}
	printf(", [%u]\n", size);
}

typedef int (*getter)(int, struct sockaddr *restrict, socklen_t *restrict);

/* Calls that give an address, with a buffer of this size. */
static int get(const char *name, getter call, int fd, socklen_t room)
{
	union address found = {0};
	socklen_t size = room;
	int result = call(fd, &found.any, &size);
	if (result >= 0)
		show(name, &found, room, size);
	else
		printf("%s failed\n", name);
	return result;
}

/* accept() through accept4(), which takes one argument more. */
static int accept_4(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
	return accept4(fd, address, size, SOCK_CLOEXEC);
}

static void streams(int family, const union address *server, const union address *own, socklen_t room)
{
	union address at = *server;
	socklen_t size = family == AF_UNIX ? offsetof(struct sockaddr_un, sun_path) + 9 : sizeof at.v6;
	if (family == AF_INET)
		size = sizeof at.v4;
	int listener = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);
	bind(listener, &at.any, size);
	listen(listener, 3);
	size = sizeof at;
	getsockname(listener, &at.any, &size);
	show("getsockname", &at, sizeof at, size);
	if (own)
		bind(client, &own->any, sizeof own->local);
	connect(client, &at.any, size);
	int accepted = get("accept4", accept_4, listener, room);
	get("getpeername", getpeername, client, room);
	get("getsockname", getsockname, client, sizeof at);
	get("getpeername", getpeername, accepted, sizeof at);
	close(client);
	close(accepted);
	client = socket(family, SOCK_STREAM, 0);
	connect(client, &at.any, size);
	accepted = get("accept", accept, listener, sizeof at);
	close(accepted);
	close(client);
	close(listener);
}

static void datagrams(int family, const union address *own)
{
	union address at = *own, from = {0};
	socklen_t size = sizeof at, room = sizeof from;
	char byte;
	int receiver = socket(family, SOCK_DGRAM, 0), sender = socket(family, SOCK_DGRAM, 0);
	bind(receiver, &at.any, family == AF_INET ? sizeof at.v4 : sizeof at.v6);
	getsockname(receiver, &at.any, &size);
	show("getsockname", &at, sizeof at, size);
	sendto(sender, "a", 1, 0, &at.any, size);
	sendto(sender, "b", 1, 0, &at.any, size);
	if (recvfrom(receiver, &byte, 1, 0, &from.any, &room) == 1)
		show("recvfrom", &from, sizeof from, room);
	/* Without a buffer there is no address. */
	recv(receiver, &byte, 1, 0);
	puts("recvfrom without");
	close(receiver);
	close(sender);
}

int main(void)
{
	union address v4 = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	union address v6 = {.v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};
	union address path = {.local = {.sun_family = AF_UNIX, .sun_path = "./server"}};
	union address own = {.local = {.sun_family = AF_UNIX, .sun_path = "./client-with-a-long-name"}};
	union address hidden = {.local = {.sun_family = AF_UNIX}};
	memcpy(hidden.local.sun_path + 1, "tompion1", 8);
	streams(AF_INET, &v4, NULL, sizeof v4);
	streams(AF_INET, &v4, NULL, 4);
	streams(AF_INET6, &v6, NULL, sizeof v6);
	streams(AF_UNIX, &path, &own, 12);
	unlink(path.local.sun_path);
	unlink(own.local.sun_path);
	streams(AF_UNIX, &hidden, NULL, 5);
	datagrams(AF_INET, &v4);
	datagrams(AF_INET6, &v6);
	get("getpeername", getpeername, socket(AF_INET, SOCK_STREAM, 0), sizeof v4);
	return 0;
}
