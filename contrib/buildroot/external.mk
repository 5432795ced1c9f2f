include $(sort $(wildcard $(BR2_EXTERNAL_PUTEX_PATH)/package/*/*.mk))
