"""What leaders and followers both do with a replica: rounds of upkeep, removal."""
