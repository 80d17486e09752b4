"""A session that no sound recorder runs: hostile_session.py HOW NAME... It takes the names and says
"ready", misbehaves until its standard input ends, then says "heard N": so many programs have
introduced themselves. Names that are taken already are left alone.

  silent      answers no program
  full        has no room for a connection
  deaf        has the names, and doesn't listen
  unsealed    hands over memory without seals, all of it there, and makes it smaller
  file        hands over files on disk that others may write, and makes them smaller
  foreign     the same with files that only user 65534 may write
  populate    has 512 MiB made present
  knock       takes no names, but connects to each again and again, and says nothing
  random SEED any of these and nonsense, another one for each name and connection; is a client of
              all the sessions that it finds, too
"""
import fcntl, os, random, signal, socket, struct, sys, tempfile, threading, time

PROTOCOL, LAYOUT, PAGE = 1, 2, 4096
WELCOME, REFUSED, RULES_CHANGED, POPULATE, JOIN = 101, 102, 103, 104, 105
CONTROL_SIZE = PAGE + 16 * PAGE + (2 << 20) + (1 << 20)
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
heard = 0

def message(kind, body=b""):
    return struct.pack("<II", kind, PROTOCOL) + body

def new_file(how, size):
    if how in ("file", "foreign"):
        file, path = tempfile.mkstemp()
        os.unlink(path)
        if how == "foreign":
            os.fchown(file, 65534, 65534)
        else:
            os.fchmod(file, 0o666)
        os.posix_fallocate(file, 0, size)
        return file
    file = os.memfd_create("tompion-rings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    if how == "unsealed":
        os.posix_fallocate(file, 0, size)
    else:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return file

def share(how, caller):
    """Welcomes a program; returns the files and the size of a ring."""
    cpus = os.cpu_count()
    subbuf = (256 << 20) if how == "populate" else (64 << 10)
    control, rings = new_file(how, CONTROL_SIZE), new_file(how, cpus * (PAGE + 2 * subbuf))
    rules = b"+14 *\n"
    head = b"TOMPCTL1" + struct.pack("<IIQQII", LAYOUT, 4 if how == "flags" else 0, subbuf, 2, cpus, 1)
    os.pwrite(control, head, 0)
    os.pwrite(control, struct.pack("<II", 1, len(rules)), 192)
    os.pwrite(control, rules, PAGE)
    socket.send_fds(caller, [message(WELCOME)], [control, rings])
    return [control, rings], 2 * subbuf

def cut(files):
    time.sleep(0.05)
    for file in files:
        os.ftruncate(file, 0)

def talk(how, caller, noise):
    """All that is done with one program."""
    if how in ("unsealed", "file", "foreign"):
        files, _ = share(how, caller)
        cut(files)
    elif how == "populate":
        _, size = share(how, caller)
        for ring in range(os.cpu_count()):
            for at in range(0, size, 16 << 20):
                body = struct.pack("<QQ", ring * (PAGE + size) + PAGE + at, 16 << 20)
                caller.send(message(POPULATE, body))
            caller.send(message(POPULATE, struct.pack("<QQ", 0, 1 << 62)))
    elif how == "nonsense":
        for _ in range(noise.randrange(20)):
            kind = noise.choice([WELCOME, REFUSED, RULES_CHANGED, POPULATE, JOIN, noise.randrange(1 << 32)])
            files = [os.open("/dev/zero", os.O_RDWR) for _ in range(noise.randrange(4))]
            socket.send_fds(caller, [message(kind, noise.randbytes(noise.randrange(64)))], files)
    else:
        return caller
    while caller.recv(65536):
        pass

def serve(how, listener, seed):
    global heard
    noise, silent = random.Random(seed), []
    kinds = ["silent", "unsealed", "file", "populate", "nonsense"]
    while True:
        caller, _ = listener.accept()
        try:
            heard += caller.recv(65536) != b""
            silent.append(talk(noise.choice(kinds) if how == "random" else how, caller, noise))
        except OSError:
            pass

def be_a_client(noise, names):
    """Connects to every session and attach socket, and says things."""
    while True:
        with open("/proc/net/unix") as table:
            found = [line.split(" ")[-1].strip() for line in table]
        for name in [name for name in found if name.startswith("@tompion-") and name[1:] not in names]:
            try:
                caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                caller.setblocking(False)
                caller.connect("\0" + name[1:])
                hello = struct.pack("<IIIII", 1, 1, os.getpid(), 0, 3)
                join = message(JOIN, struct.pack("<I", 4) + b"fake")
                caller.send(noise.choice([hello, join, noise.randbytes(noise.randrange(1, 100))]))
            except OSError:
                pass
        time.sleep(0.01)

def knock(names):
    """Has silent connections to these names at any time, each of another process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    while os.getppid() == parent:
        for name in names:
            if os.fork() == 0:
                caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                try:
                    caller.connect("\0" + name)
                except OSError:
                    os._exit(0)
                time.sleep(2)
                os._exit(0)
        time.sleep(0.1)
    os._exit(0)

how, names = sys.argv[1], sys.argv[2:]
seed = int(names.pop(0)) if how == "random" else 0
sockets = []
if how == "knock":
    knocker = os.fork() or knock(names)
for number, name in enumerate(names if how != "knock" else []):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kind = random.Random(seed + number).choice(["random"] * 6 + ["full", "deaf"]) if how == "random" else how
    try:
        listener.bind("\0" + name)
    except OSError:
        continue
    sockets.append(listener)
    if kind == "full":
        listener.listen(0)
        for _ in range(4):
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            caller.setblocking(False)
            sockets.append(caller)
            try:
                caller.connect("\0" + name)
            except OSError:
                break
    elif kind != "deaf":
        listener.listen(100)
        threading.Thread(target=serve, args=(kind, listener, seed + number), daemon=True).start()
if how == "random":
    threading.Thread(target=be_a_client, args=(random.Random(seed), names), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print("heard", heard, flush=True)
if how == "knock":
    os.kill(knocker, signal.SIGKILL)
os._exit(0)
