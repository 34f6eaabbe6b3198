"""The notebook's side: magics now, the dashboard later; reads snapshots and events only."""
