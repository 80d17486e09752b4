#!/usr/bin/env python3
"""The latency monitor beside the tools that people have: Prometheus and Munin, as the distribution packages them.

given  a monitor that counts, and a real-time thread that another one of a higher priority keeps from its CPU
when   a real Prometheus asks the monitor's page, with the alerts that we ship, and a real munin-node runs our plugin
then   Prometheus has the page's metrics and fires the alert, and Munin gets the longest of each CPU: as long as the
       disturbance, and less when that has ended, without a reset; at first nothing, because what was before may be of any time;
       of a monitor that takes the first one's place all that it counted

Exits with 77 where one of them or the permission is missing.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from power_cut import BUILD, ROOT, left_out

OURS = ROOT / "integrations"
NAME = f"tompion-peers-{os.getpid()}"
HELD_MS = 5
WAIT_TIMEOUT = 120
# munin-node has its folder compiled in; nothing else about it is changed.
MUNIN = """
use Munin::Common::Defaults;
$Munin::Common::Defaults::MUNIN_CONFDIR = shift;
do "/usr/sbin/munin-node";
die $@ if $@;
exit main();
"""


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def monitor(*words):
    return [str(BUILD / "tompion"), "monitor", "--name", NAME, *words]


def wait_for(what, ask):
    """Asks until there is an answer."""
    until = time.monotonic() + WAIT_TIMEOUT
    while time.monotonic() < until:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError(f"timed out waiting for {what}")


def real_time(priority, work):
    """A process on the first CPU, until it has done its work."""
    cpu = min(os.sched_getaffinity(0))
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, [cpu])
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        work()
        os._exit(0)
    return child


def sleep_often(times):
    for _ in range(times):
        time.sleep(0.001)


def hold_often():
    """Keeps the CPU from all that are lower."""
    for _ in range(20):
        time.sleep(0.01)
        until = time.monotonic() + HELD_MS / 1000
        while time.monotonic() < until:
            pass


def disturb():
    for child in [real_time(50, lambda: sleep_often(400)), real_time(60, hold_often)]:
        os.waitpid(child, 0)


def rest():
    os.waitpid(real_time(50, lambda: sleep_often(200)), 0)


class Running:
    """A program until its end."""

    def __init__(self, command, log, **options):
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def query(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def check_prometheus(work):
    rules = OURS / "prometheus"
    for check in (["check", "config", "prometheus.yml"], ["test", "rules", "tompion-monitor.test.yml"]):
        done = subprocess.run(["promtool", *check], cwd=rules, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    page, port = free_port(), free_port()
    text = (rules / "prometheus.yml").read_text().replace("localhost:9464", f"127.0.0.1:{page}").replace("15s", "1s")
    (work / "prometheus.yml").write_text(text)
    shutil.copy(rules / "tompion-monitor.rules.yml", work)
    command = ["prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with Running(monitor("--listen", f"127.0.0.1:{page}"), work / "page.log"), Running(command, work / "prometheus.log") as peer:
        begun = "query?" + urllib.parse.urlencode({"query": "sum(tompion_wakeups_begun_total)"})
        wait_for(f"Prometheus to have asked: {peer.log.read_text()}", lambda: (query(port, begun) or {}).get("result"))

        def firing():
            # An increase takes two readings around it.
            disturb()
            alerts = (query(port, "alerts") or {}).get("alerts", [])
            return [it for it in alerts if it["labels"]["alertname"] == "RealTimeLatency" and it["state"] == "firing"]

        alert = wait_for("the alert", firing)[0]
        assert f"127.0.0.1:{page}" in alert["annotations"]["summary"], alert
        names = query(port, "label/__name__/values")
        assert {"tompion_latency_seconds_bucket", "tompion_latency_recent_max_seconds", "tompion_wakeup_accounting_error"} <= set(names), names
    return len(names)


def ask_munin(port, words):
    """What a munin-node says: up to a dot by itself."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        lines = connection.makefile("rw")
        lines.readline()
        lines.write("cap multigraph\n")
        lines.flush()
        assert "multigraph" in lines.readline()
        lines.write(words + "\n")
        lines.flush()
        answer = []
        for line in lines:
            if line.strip() == ".":
                return answer
            answer.append(line.strip())
    raise AssertionError(f"munin-node broke off: {answer}")


def is_there(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    except OSError:
        return False


def longest(port):
    """By graph, the longest of all CPUs; None where it is not known."""
    found, graph = {}, ""
    for line in ask_munin(port, "fetch tompion_latency"):
        word, value = line.split()
        if word == "multigraph":
            graph = value
        elif value == "U":
            found[graph] = None
        else:
            found[graph] = max(found.get(graph) or 0.0, float(value))
    return found


def check_munin(work):
    port, folder = free_port(), work / "munin"
    for name in ("plugins", "plugin-conf.d", "state"):
        (folder / name).mkdir(parents=True)
    shutil.copy(OURS / "munin/tompion_latency", folder / "plugins")
    settings = (OURS / "munin/tompion.conf").read_text().replace("#env", "env")
    settings += f"env.tompion {BUILD}/tompion\nenv.monitor {NAME}\nenv.MUNIN_PLUGSTATE {folder}/state\n"
    (folder / "plugin-conf.d/tompion").write_text(settings)
    (folder / "munin-node.conf").write_text(
        f"log_level 4\nlog_file {folder}/log\npid_file {folder}/pid\nbackground 0\nsetsid 0\nuser root\ngroup root\n"
        f"allow ^127\\.0\\.0\\.1$\nhost 127.0.0.1\nport {port}\n"
    )
    command = ["perl", "-e", MUNIN, folder, "--config", folder / "munin-node.conf", "--foreground"]
    with Running(command, work / "munin.log", env={**os.environ, "LD_LIBRARY_PATH": str(BUILD)}):
        wait_for("munin-node", lambda: is_there(port))
        config = ask_munin(port, "config tompion_latency")
        graphs = [line.split()[1] for line in config if line.startswith("multigraph ")]
        assert len(graphs) == 7 and "cpu0.critical 1000" in config, config
        disturb()
        unknown = longest(port)
        assert set(unknown) == set(graphs) and set(unknown.values()) == {None}, unknown
        disturb()
        first = longest(port)
        assert set(first) == set(graphs), first
        # It is unknown exactly how long it held the CPU, but it did for most of that time.
        assert first["tompion_latency"] == first["tompion_latency.timer_wakeup_all"] > HELD_MS * 500, first
        assert first["tompion_latency.preempted"] > HELD_MS * 500, first
        longest(port)
        # Another thread of the machine's may be preempted at any time, but not for as long again
        # and again.
        wait_for("five minutes without a disturbance", lambda: rest() or longest(port)["tompion_latency"] < HELD_MS * 500)
        # Another monitor has fewer in most places of its histograms: nothing of the first one is
        # subtracted from them.
        subprocess.run(monitor("stop"), capture_output=True, check=True)
        subprocess.run(monitor("--once"), capture_output=True, check=True)
        rest()
        again = longest(port)["tompion_latency"]
        assert again > 0, "a monitor that was begun again has no metrics"
    return len(graphs)


def main():
    tools = {"prometheus": "prometheus", "promtool": "prometheus", "munin-node": "munin-node", "perl": "perl"}
    os.environ["PATH"] += ":/usr/sbin"
    for tool, package in tools.items():
        if not shutil.which(tool):
            left_out(f"{tool} is missing (apt install {package})")
    begun = subprocess.run(monitor("--once"), capture_output=True, text=True, check=False)
    if begun.returncode:
        left_out(f"latencies can't be counted here: {begun.stderr.strip()}")
    try:
        with tempfile.TemporaryDirectory(prefix="tompion-peers-") as work:
            begin = time.monotonic()
            graphs, names = check_munin(Path(work)), check_prometheus(Path(work))
            print(f"monitor_peers: {graphs} graphs, {names} metrics, an alert; {time.monotonic() - begin:.0f} s", flush=True)
    finally:
        subprocess.run(monitor("stop"), capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
