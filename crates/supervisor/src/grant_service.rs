//! Calls of users with grants, on the socket of root's supervisor to which every user can connect.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tompion_control::{Call, CallError, Caller, Identity, Service, check_session_name};
use tompion_grants::{Grant, Grants, Member};

use crate::{
    DESCRIPTION, INTERFACE,
    grantee::{Grantee, Refusal, check, memory_of},
    key::SessionKey,
    qualified,
    service::{SupervisorService, invalid, no_such_session},
    session_file::{Channel, SessionFile},
    supervisor::Shared,
    types::Applied,
};

/// Most connections of one user. Each has a thread.
pub const MAX_PER_USER: usize = 4;

/// Answers calls of users other than root, within their grants.
pub struct GrantService {
    shared: Arc<Shared>,
    /// Does what is permitted.
    operator: SupervisorService,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByName {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    name: String,
    session: Map<String, Value>,
    restart: bool,
}

impl GrantService {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { operator: SupervisorService::new(Arc::clone(&shared)), shared }
    }

    /// Has a session run as it is described, within the caller's grant.
    fn run(&self, member: &Member, group: u32, run: Run) -> Result<Applied, CallError> {
        let Run { name, session, restart } = run;
        check_session_name(&name).map_err(|error| invalid(&error.to_string()))?;
        let wanted: SessionFile =
            serde_json::from_value(Value::Object(session)).map_err(|error| invalid(&error.to_string()))?;
        wanted.check().map_err(|problem| invalid(&problem))?;
        let key = SessionKey::of(member.user, name);
        let grants = self.shared.grants();
        let grant = grant_of(&grants, member)?;
        self.check(&key, &wanted, grant)?;
        let grantee = Grantee::new(member, group, grant);
        let applied = self.operator.apply_described(&key, &wanted, Some(&grantee), restart);
        // Others may have been read since, which did not see this session.
        if !Arc::ptr_eq(&grants, &self.shared.grants()) {
            self.shared.enforce_grants();
        }
        applied
    }

    /// Checks that a session is within a grant, with what its recorders take until they are started
    /// again.
    fn check(&self, key: &SessionKey, wanted: &SessionFile, grant: &Grant) -> Result<(), CallError> {
        let user = key.user.unwrap_or_default();
        let mut state = self.shared.state();
        if state.used(user, key).sessions >= grant.sessions {
            // Those that have ended only say how.
            let ended: Vec<_> = state
                .of_user(user)
                .into_iter()
                .filter(|other| other != key && !state.is_active(other))
                .collect();
            ended.iter().for_each(|other| self.shared.forget(&mut state, other));
        }
        let mut together = wanted.clone();
        for (channel, recorder) in state.sessions.get(key).into_iter().flatten() {
            let (Some(running), Some(wanted)) =
                (recorder.session.channel.get(channel), together.channel.get_mut(channel))
            else {
                continue;
            };
            if recorder.is_active() && memory_of_channel(running) > memory_of_channel(wanted) {
                wanted.clone_from(running);
            }
        }
        let used = state.used(user, key);
        check(wanted, grant, user, used).and_then(|()| check(&together, grant, user, used)).map_err(refused)
    }

    fn stop(&self, user: u32, name: &str) -> Result<Vec<String>, CallError> {
        check_session_name(name).map_err(|_| no_such_session(name))?;
        self.operator.stop(&SessionKey::of(user, name))
    }
}

/// Memory that a channel takes by itself; 0 if it has no limit.
fn memory_of_channel(channel: &Channel) -> u64 {
    let mut session = SessionFile::default();
    session.channel.insert("only".into(), channel.clone());
    memory_of(&session).unwrap_or(0)
}

/// The caller as the kernel noted it when it connected: its process may be another one by now.
fn member_of(caller: &Caller) -> Result<Member, CallError> {
    let groups = caller.groups.clone().ok_or_else(|| not_permitted("a kernel that tells groups"))?;
    Ok(Member { user: caller.peer.uid, groups: groups.all })
}

/// Returns the caller's grant.
fn grant_of<'a>(grants: &'a Grants, member: &Member) -> Result<&'a Grant, CallError> {
    let needs = || {
        let user = member.user;
        format!("a grant: a file in /etc/tompion/grants.d with user {user} or one of its groups in `users`")
    };
    grants.of(member).ok_or_else(|| not_permitted(&needs()))
}

fn not_permitted(needs: &str) -> CallError {
    CallError::new(&qualified("NotPermitted"), "needs", needs)
}

fn refused(refusal: Refusal) -> CallError {
    match refusal {
        Refusal::NotPermitted(needs) => not_permitted(&needs),
        Refusal::Invalid(problem) => invalid(&problem),
        Refusal::WouldExceed { what, wanted, left } => {
            let parameters = [("what", what.into()), ("wanted", wanted.into()), ("left", left.into())];
            let parameters = parameters.map(|(key, value): (&str, Value)| (key.to_owned(), value));
            CallError { name: qualified("WouldExceed"), parameters: Map::from_iter(parameters) }
        }
    }
}

impl Service for GrantService {
    fn identity(&self) -> Identity {
        self.operator.identity()
    }

    fn interface(&self) -> &'static str {
        INTERFACE
    }

    fn description(&self) -> &'static str {
        DESCRIPTION
    }

    /// Users without a grant are refused here, unless they have sessions of an earlier one, so that
    /// they keep no connection from others.
    fn admit(&self, caller: &Caller) -> Result<(), CallError> {
        let user = caller.peer.uid;
        if !tompion_os::is_one_user(user) {
            return Err(CallError::permission_denied());
        }
        if user == 0 || self.shared.state().has_user(user) {
            return Ok(());
        }
        let member = member_of(caller)?;
        grant_of(&self.shared.grants(), &member).map(drop)
    }

    fn call(&self, caller: &Caller, method: &str, call: &Call) -> Result<Value, CallError> {
        let user = caller.peer.uid;
        if user == 0 {
            return Err(not_permitted("a user other than root, which has a socket of its own"));
        }
        let member = member_of(caller)?;
        let first = caller.groups.as_ref().map_or(user, |groups| groups.first);
        // One after the other: what is left of a grant is known.
        let turn = format!("user {user}");
        match method {
            "List" => {
                let NoParameters {} = call.parameters()?;
                let keys = self.shared.state().of_user(user);
                Ok(json!(self.operator.list_of(keys)))
            }
            "Run" => {
                let run = call.parameters()?;
                grant_of(&self.shared.grants(), &member)?;
                let applied = self.shared.operate(&turn, || self.run(&member, first, run));
                applied.map(|applied| json!(applied))
            }
            // Also without a grant, which the user may have had.
            "Stop" => {
                let ByName { name } = call.parameters()?;
                let folders = self.shared.operate(&turn, || self.stop(user, &name));
                folders.map(|folders| json!({ "folders": folders }))
            }
            "Apply" | "Create" | "Remove" => Err(not_permitted("root")),
            _ => Err(CallError::method_not_found(&call.method)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_takes_memory_for_kernel_events_and_counts_too() {
        let channel = |text: &str| {
            let session = SessionFile::parse(&format!("[channel.a]\nmemory = '21M'\n{text}"));
            memory_of_channel(&session.expect("a session").channel["a"])
        };
        let (plain, all) = (channel(""), channel("kernel = []\ncount = ['count a:b']"));
        assert_eq!(plain, 21 << 20);
        assert!(all >= 3 * plain, "{all}");
    }
}
