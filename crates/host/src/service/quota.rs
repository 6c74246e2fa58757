//! What each user has taken of this host, and the limits of that.

use std::collections::HashMap;

use punctual_proto::api::UserId;
use punctual_proto::limits::{LISTENERS_FOR_ROOT, LISTENERS_MAX};
use punctual_trial::{Defence, holds};

use punctual_ipc::api::{ApiError, Quotas, Resource, UserStatus};

/// Root and the user that this process runs as, trusted with it: a place is kept for them, their requests are not held to a
/// share, and their bells are rung by the processor.
pub(super) fn is_privileged(user: UserId) -> bool {
    user.0 == 0 || user.0 == rustix::process::geteuid().as_raw()
}

/// Listeners of all users but root and the daemon's own.
const LISTENERS_OF_OTHERS: u64 = (LISTENERS_MAX - LISTENERS_FOR_ROOT) as u64;

/// The accounts of all users. Entries of users without resources are dropped.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    quotas: Quotas,
    users: HashMap<UserId, UserStatus>,
}

impl Accounts {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self { quotas, users: HashMap::new() }
    }

    pub(super) fn quotas(&self) -> Quotas {
        self.quotas
    }

    /// Takes `amount` of `what` for `user`, or fails and takes nothing.
    pub(super) fn take(&mut self, user: UserId, what: Resource, amount: u64) -> Result<(), ApiError> {
        let limit = limit(&self.quotas, what);
        let is_new = !is_privileged(user) && !self.users.contains_key(&user);
        let users = self.users.keys().filter(|user| !is_privileged(**user)).count() as u64;
        if is_new && users >= self.quotas.users {
            return Err(ApiError::Quota { what: Resource::Users, used: users, limit: self.quotas.users });
        }
        let account = self.users.entry(user).or_insert(UserStatus { user, ..UserStatus::default() });
        let used = field(account, what);
        let wanted = used.saturating_add(amount);
        if wanted > limit {
            let used = if amount > limit { amount } else { *used };
            self.drop_if_empty(user);
            return Err(ApiError::Quota { what, used, limit });
        }
        *used = wanted;
        Ok(())
    }

    /// Takes `amount` of `what` for `user`, for which there was room a moment ago.
    pub(super) fn add(&mut self, user: UserId, what: Resource, amount: u64) {
        let account = self.users.entry(user).or_insert(UserStatus { user, ..UserStatus::default() });
        let used = field(account, what);
        *used = used.saturating_add(amount);
        self.drop_if_empty(user);
    }

    /// Takes a listener for `user`. Whatever other users have, some of the node's listeners are reserved for
    /// root and the daemon's own user.
    pub(super) fn take_listener(&mut self, user: UserId) -> Result<(), ApiError> {
        let others = self.users.values().filter(|held| !is_privileged(held.user));
        let used = others.map(|held| held.listeners).sum();
        if !is_privileged(user) && used >= LISTENERS_OF_OTHERS && holds(Defence::PlacesForRoot) {
            return Err(ApiError::Quota { what: Resource::AllListeners, used, limit: LISTENERS_OF_OTHERS });
        }
        self.take(user, Resource::Listeners, 1)
    }

    /// Gives `amount` of `what` back.
    pub(super) fn give_back(&mut self, user: UserId, what: Resource, amount: u64) {
        if let Some(account) = self.users.get_mut(&user) {
            let used = field(account, what);
            *used = used.saturating_sub(amount);
        }
        self.drop_if_empty(user);
    }

    fn drop_if_empty(&mut self, user: UserId) {
        if self.users.get(&user) == Some(&UserStatus { user, ..UserStatus::default() }) {
            self.users.remove(&user);
        }
    }

    /// Whether `amount` of `what` is left for `user`.
    pub(super) fn has_room(&self, user: UserId, what: Resource, amount: u64) -> bool {
        let used = self.users.get(&user).map_or(0, |account| *field(&mut account.clone(), what));
        used.saturating_add(amount) <= limit(&self.quotas, what)
    }

    /// What each user has taken, for `status`.
    pub(super) fn statuses(&self) -> Vec<UserStatus> {
        let mut users: Vec<UserStatus> = self.users.values().copied().collect();
        users.sort_unstable_by_key(|status| status.user.0);
        users
    }
}

fn limit(quotas: &Quotas, what: Resource) -> u64 {
    if !holds(Defence::Quotas) {
        return u64::MAX;
    }
    match what {
        Resource::UnreadBytes if !holds(Defence::BoundedUnread) => u64::MAX,
        Resource::Descriptors if !holds(Defence::DescriptorQuota) => u64::MAX,
        Resource::Users => quotas.users,
        Resource::Clients => quotas.clients,
        Resource::Listeners | Resource::AllListeners => quotas.listeners,
        Resource::Channels => quotas.channels,
        Resource::BufferBytes => quotas.buffer_bytes,
        Resource::UnreadBytes => quotas.unread_bytes,
        Resource::Descriptors => quotas.descriptors,
    }
}

fn field(account: &mut UserStatus, what: Resource) -> &mut u64 {
    match what {
        // A user holds only the resources below, so its first resource makes it a user.
        Resource::Users | Resource::Clients => &mut account.clients,
        Resource::Listeners | Resource::AllListeners => &mut account.listeners,
        Resource::Channels => &mut account.channels,
        Resource::BufferBytes => &mut account.buffer_bytes,
        Resource::UnreadBytes => &mut account.unread_bytes,
        Resource::Descriptors => &mut account.descriptors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_kept_per_user_and_given_back() {
        let mut accounts = Accounts::new(Quotas { channels: 2, ..Quotas::default() });
        let (ann, bob) = (UserId(1), UserId(2));
        assert_eq!(accounts.take(ann, Resource::Channels, 2), Ok(()));
        let error = ApiError::Quota { what: Resource::Channels, used: 2, limit: 2 };
        assert_eq!(accounts.take(ann, Resource::Channels, 1), Err(error));
        assert_eq!(accounts.take(bob, Resource::Channels, 1), Ok(()));
        accounts.give_back(ann, Resource::Channels, 1);
        assert_eq!(accounts.take(ann, Resource::Channels, 1), Ok(()));
        accounts.give_back(ann, Resource::Channels, 2);
        assert_eq!(accounts.statuses(), [UserStatus { user: bob, channels: 1, ..UserStatus::default() }]);
    }

    #[test]
    fn a_place_is_kept_for_root_beside_any_other_users() {
        let mut accounts = Accounts::new(Quotas { users: 2, ..Quotas::default() });
        let take = |accounts: &mut Accounts, user| accounts.take(UserId(user), Resource::Clients, 1);
        assert_eq!([5, 6].map(|user| take(&mut accounts, user)), [Ok(()), Ok(())]);
        let error = ApiError::Quota { what: Resource::Users, used: 2, limit: 2 };
        assert_eq!(take(&mut accounts, 7), Err(error));
        assert_eq!(take(&mut accounts, 0), Ok(()));
        accounts.give_back(UserId(5), Resource::Clients, 1);
        assert_eq!(take(&mut accounts, 7), Ok(()), "root takes no other user's place");
    }

    /// By default 64 users may have 64 listeners each: all that the node had before some were reserved.
    #[test]
    fn listeners_are_kept_for_root_if_other_users_hold_all_others() {
        let mut accounts = Accounts::new(Quotas { users: 64, listeners: 64, ..Quotas::default() });
        for user in (0..64).map(|user| UserId(5_000 + user)) {
            assert!((0..64).all(|_| accounts.take_listener(user).is_ok()));
        }
        let mut larger = Accounts::new(Quotas { listeners: u64::MAX, ..Quotas::default() });
        let taken = (0..).take_while(|_| larger.take_listener(UserId(5_000)).is_ok()).count() as u64;
        assert_eq!(taken, LISTENERS_OF_OTHERS);
        let limit = LISTENERS_OF_OTHERS;
        let error = ApiError::Quota { what: Resource::AllListeners, used: limit, limit };
        assert_eq!(larger.take_listener(UserId(5_001)), Err(error.clone()));
        assert!(error.to_string().contains("lower listeners_per_user_max"), "{error}");
        assert!((0..64).all(|_| larger.take_listener(UserId(0)).is_ok()), "root");
        larger.give_back(UserId(5_000), Resource::Listeners, 1);
        assert!(larger.take_listener(UserId(5_001)).is_ok());
    }

    #[test]
    fn an_amount_beyond_the_limit_itself_gets_that_error() {
        let mut accounts = Accounts::new(Quotas { buffer_bytes: 10, ..Quotas::default() });
        let error = ApiError::Quota { what: Resource::BufferBytes, used: 11, limit: 10 };
        let text = error.to_string();
        assert!(text.contains("11 bytes of buffers are requested at once, 10 are allowed"), "{text}");
        assert!(text.contains("raise buffers_per_user_max of [daemon]"), "{text}");
        assert_eq!(accounts.take(UserId(1), Resource::BufferBytes, 11), Err(error));
        assert!(accounts.statuses().is_empty());
    }
}
